#include "anneal/engine/data/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

bool has_extension(std::string_view path, std::initializer_list<std::string_view> extensions) {
  std::string lower(path.substr(std::min(path.rfind('.'), path.size())));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::find(extensions.begin(), extensions.end(), lower) != extensions.end();
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

[[noreturn]] void refuse_format(std::span<const std::byte> bytes) {
  fail(ErrorCode::kInvalidArgument,
       bytes.empty() ? "the file is empty"
                     : "it is neither JPEG nor PNG by its first bytes; convert it to JPEG or PNG");
}

}  // namespace

bool has_image_name(std::string_view path) {
  return has_extension(path, {".jpg", ".jpeg", ".jpe", ".jfif", ".png"});
}

bool has_foreign_image_name(std::string_view path) {
  return has_extension(path, {".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".heic",
                              ".avif", ".jp2", ".jxl", ".tga"});
}

Image blank_image(int64_t height, int64_t width, int channels) {
  if (height < 1 || width < 1 || height > kMostPixels / width)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("a picture of {} x {} pixels is beyond what is read (at most {} pixels)",
                     width, height, kMostPixels));
  Image image{height, width, channels, {}};
  image.pixels.resize(static_cast<size_t>(height * width * channels));
  return image;
}

Image decode_image(std::span<const std::byte> bytes) {
  if (starts_with(bytes, "\xff\xd8")) return decode_jpeg(bytes);
  if (starts_with(bytes, "\x89PNG")) return decode_png(bytes);
  refuse_format(bytes);
}

Dims image_size(std::span<const std::byte> bytes) {
  if (starts_with(bytes, "\xff\xd8")) return jpeg_size(bytes);
  if (starts_with(bytes, "\x89PNG")) return png_size(bytes);
  refuse_format(bytes);
}

Image to_grey(Image image) {
  if (image.channels == 1) return image;
  const auto count = static_cast<size_t>(image.height * image.width);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* pixel = image.pixels.data() + 3 * i;
    image.pixels[i] = static_cast<uint8_t>(
        (pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
  }
  image.pixels.resize(count);
  image.channels = 1;
  return image;
}

Image to_colour(Image image) {
  if (image.channels == 3) return image;
  Image colour = blank_image(image.height, image.width, 3);
  for (size_t i = 0; i < colour.pixels.size(); ++i) colour.pixels[i] = image.pixels[i / 3];
  return colour;
}

Dims size_with_shorter_side(const Dims& size, int64_t side) {
  if (size[1] <= size[0]) return {side * size[0] / size[1], side};
  return {side, side * size[1] / size[0]};
}

Dims crop_corner(const Dims& image, const Dims& crop) {
  if (crop[0] > image[0] || crop[1] > image[1])
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the picture is {} x {} (height x width), smaller than the crop of {} x {}; "
                     "resize it first with resize",
                     image[0], image[1], crop[0], crop[1]));
  const auto margin = [](int64_t all, int64_t kept) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(all - kept) / 2));
  };
  return {margin(image[0], crop[0]), margin(image[1], crop[1])};
}

Image centre_crop(const Image& image, const Dims& size) {
  const Dims corner = crop_corner({image.height, image.width}, size);
  Image crop = blank_image(size[0], size[1], image.channels);
  const auto row = static_cast<size_t>(size[1] * image.channels);
  for (int64_t y = 0; y < size[0]; ++y)
    std::memcpy(crop.pixels.data() + static_cast<size_t>(y) * row,
                image.pixels.data() + ((corner[0] + y) * image.width + corner[1]) * image.channels,
                row);
  return crop;
}

}  // namespace anneal
