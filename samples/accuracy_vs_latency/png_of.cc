#include "png_of.h"

#ifdef SAMPLE_HAS_RSVG
#include <librsvg/rsvg.h>

#include <memory>

namespace {

constexpr double kScale = 2;  // pixels of a length of 1

}  // namespace

std::string png_of(const std::string& svg, const std::string& path) {
  GError* error = nullptr;
  const std::unique_ptr<RsvgHandle, decltype(&g_object_unref)> handle(
      rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error),
      g_object_unref);
  const auto told = [&] {
    std::string text = error != nullptr ? error->message : "it cannot be drawn";
    if (error != nullptr) g_error_free(error);
    return text;
  };
  if (!handle) return told();
  double width = 0, height = 0;
  if (rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height) == FALSE)
    return "the picture has no size";
  const std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface(
      cairo_image_surface_create(CAIRO_FORMAT_ARGB32, static_cast<int>(width * kScale),
                                 static_cast<int>(height * kScale)),
      cairo_surface_destroy);
  const std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo(cairo_create(surface.get()),
                                                                 cairo_destroy);
  const RsvgRectangle whole{0, 0, width * kScale, height * kScale};
  if (rsvg_handle_render_document(handle.get(), cairo.get(), &whole, &error) == FALSE)
    return told();
  const cairo_status_t status = cairo_surface_write_to_png(surface.get(), path.c_str());
  return status == CAIRO_STATUS_SUCCESS ? "" : cairo_status_to_string(status);
}
#else
std::string png_of(const std::string&, const std::string&) {
  return "librsvg (librsvg2-dev) was not there when this was built";
}
#endif
