// PNG by libpng. Its errors leave through longjmp, so the functions that call it own nothing that
// has a destructor; memory is taken between them.
#include <fmt/format.h>
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/image.h"

namespace anneal {
namespace {

struct PngJob {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> left;
  char message[200] = {};
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto* job = static_cast<PngJob*>(png_get_error_ptr(png));
  std::snprintf(job->message, sizeof(job->message), "%s", text);
  png_longjmp(png, 1);
}

void on_read(png_structp png, png_bytep to, size_t size) {
  auto* job = static_cast<PngJob*>(png_get_io_ptr(png));
  if (size > job->left.size()) png_error(png, "the file is cut off");
  std::memcpy(to, job->left.data(), size);
  job->left = job->left.subspan(size);
}

// All are false after an error, which is in job.message.
bool begin_png(PngJob& job) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  png_set_read_fn(job.png, &job, on_read);
  png_set_user_limits(job.png, kMostPixels, kMostPixels);
  png_set_chunk_malloc_max(job.png, 8U << 20);
  png_read_info(job.png, job.info);
  return true;
}

// Pixels of 8 bits per channel.
bool want_colours(PngJob& job) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  if (png_get_color_type(job.png, job.info) == PNG_COLOR_TYPE_PALETTE)
    png_set_palette_to_rgb(job.png);
  else if (png_get_bit_depth(job.png, job.info) < 8)
    png_set_expand_gray_1_2_4_to_8(job.png);
  png_set_strip_16(job.png);
  png_set_strip_alpha(job.png);
  return true;
}

// The stored values, in bytes, or in 16 bits if they are stored so.
bool want_indices(PngJob& job) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  png_set_packing(job.png);
  if (std::endian::native == std::endian::little) png_set_swap(job.png);
  return true;
}

bool read_png_rows(PngJob& job, uint8_t* to, uint32_t height, size_t row) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  const int passes = png_set_interlace_handling(job.png);
  png_read_update_info(job.png, job.info);
  if (png_get_rowbytes(job.png, job.info) != row) png_error(job.png, "rows of another size");
  for (int pass = 0; pass < passes; ++pass)
    for (uint32_t y = 0; y < height; ++y) png_read_row(job.png, to + y * row, nullptr);
  png_read_end(job.png, nullptr);
  return true;
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) {
    job_.left = bytes;
    job_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job_, on_error,
                                      [](png_structp, png_const_charp) {});
    if (job_.png != nullptr) job_.info = png_create_info_struct(job_.png);
    if (job_.info == nullptr) {
      png_destroy_read_struct(&job_.png, nullptr, nullptr);
      refuse();
    }
  }
  ~Reader() { png_destroy_read_struct(&job_.png, &job_.info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  PngJob& job() { return job_; }
  [[noreturn]] void refuse() const {
    fail(ErrorCode::kInvalidArgument, fmt::format("PNG: {}", job_.message));
  }

 private:
  PngJob job_;
};

}  // namespace

Image decode_png(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  PngJob& job = reader.job();
  if (!begin_png(job) || !want_colours(job)) reader.refuse();
  const int type = png_get_color_type(job.png, job.info);
  const int channels = (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
  const uint32_t height = png_get_image_height(job.png, job.info);
  Image image = blank_image(height, png_get_image_width(job.png, job.info), channels);
  if (!read_png_rows(job, image.pixels.data(), height, static_cast<size_t>(image.width * channels)))
    reader.refuse();
  return image;
}

Dims png_size(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (!begin_png(reader.job())) reader.refuse();
  return {png_get_image_height(reader.job().png, reader.job().info),
          png_get_image_width(reader.job().png, reader.job().info)};
}

Tensor decode_png_indices(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  PngJob& job = reader.job();
  if (!begin_png(job)) reader.refuse();
  const int type = png_get_color_type(job.png, job.info);
  if (type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY)
    fail(
        ErrorCode::kInvalidArgument,
        "PNG: its pixels are colours, or have an alpha channel, and are no classes; save it with a "
        "palette or in grey, a pixel's number being its class");
  if (!want_indices(job)) reader.refuse();
  const bool is_wide = png_get_bit_depth(job.png, job.info) == 16;
  const uint32_t height = png_get_image_height(job.png, job.info);
  const uint32_t width = png_get_image_width(job.png, job.info);
  const size_t row = size_t{width} * (is_wide ? 2 : 1);
  blank_image(height, width, 1);
  std::vector<uint8_t> stored(height * row);
  if (!read_png_rows(job, stored.data(), height, row)) reader.refuse();
  auto made = allocate_tensor(DataType::kI32, {height, width});
  auto* indices = reinterpret_cast<int32_t*>(made.data.data());
  for (size_t i = 0; i < size_t{height} * width; ++i) {
    uint16_t wide = 0;
    if (is_wide) std::memcpy(&wide, stored.data() + 2 * i, 2);
    indices[i] = is_wide ? wide : stored[i];
  }
  return made.tensor;
}

}  // namespace anneal
