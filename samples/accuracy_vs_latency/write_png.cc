#include "write_png.h"

#include <librsvg/rsvg.h>

#include <memory>
#include <stdexcept>

namespace {

constexpr double kScale = 2;  // pixels of a length of 1

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* object) const { release(object); }
};
using Handle = std::unique_ptr<RsvgHandle, decltype(&g_object_unref)>;
using Surface = std::unique_ptr<cairo_surface_t, Release<cairo_surface_t, cairo_surface_destroy>>;
using Cairo = std::unique_ptr<cairo_t, Release<cairo_t, cairo_destroy>>;
using GlibError = std::unique_ptr<GError, Release<GError, g_error_free>>;

[[noreturn]] void fail(const std::string& path, GError* error) {
  const GlibError owner(error);
  throw std::runtime_error("cannot draw " + path + ": " +
                           (error != nullptr ? error->message : "librsvg gives no reason"));
}

}  // namespace

void write_png(const std::string& svg, const std::string& path) {
  GError* error = nullptr;
  const Handle handle(
      rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error),
      g_object_unref);
  double width = 0, height = 0;
  if (!handle || rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height) == FALSE)
    fail(path, error);
  const Surface surface(cairo_image_surface_create(
      CAIRO_FORMAT_ARGB32, static_cast<int>(width * kScale), static_cast<int>(height * kScale)));
  const Cairo cairo(cairo_create(surface.get()));
  const RsvgRectangle whole{0, 0, width * kScale, height * kScale};
  if (rsvg_handle_render_document(handle.get(), cairo.get(), &whole, &error) == FALSE)
    fail(path, error);
  if (const cairo_status_t status = cairo_surface_write_to_png(surface.get(), path.c_str());
      status != CAIRO_STATUS_SUCCESS)
    throw std::runtime_error("cannot write " + path + ": " + cairo_status_to_string(status));
}
