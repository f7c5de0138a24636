// Pictures: decoding of JPEG and PNG, conversion between grey and colour, resizing. Pixels equal
// Pillow's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/shape.h"
#include "anneal/core/tensor.h"
#include "anneal/engine/data/data_format.h"

namespace anneal {

// Larger ones are refused before memory is taken for them.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

// 8 bits per channel, rows from the top, channels beside each other: grey, or red, green, blue.
struct Image {
  int64_t height = 0, width = 0;
  int channels = 3;  // 1 or 3
  std::vector<uint8_t> pixels;
};

// By the name's extension.
bool has_image_name(std::string_view path);
// A picture all the same, of a format that is not read.
bool has_foreign_image_name(std::string_view path);

// JPEG or PNG, by the first bytes. As stored: an orientation in EXIF is not applied. For PNG, the
// alpha channel is dropped, and of 16 bits the upper 8 are kept. Fails with kInvalidArgument on
// CMYK, on damaged or truncated files, and beyond kMostPixels.
Image decode_image(std::span<const std::byte> bytes);
Image decode_jpeg(std::span<const std::byte> bytes);
Image decode_png(std::span<const std::byte> bytes);
// {height, width}, from the file's header. Fails as decode_image() does on other formats.
Dims image_size(std::span<const std::byte> bytes);
Dims jpeg_size(std::span<const std::byte> bytes);
Dims png_size(std::span<const std::byte> bytes);
// The numbers that a PNG stores, i32 [height,width]: of a palette the indices, of grey the values
// of 1 to 16 bits. Fails on colours, too.
Tensor decode_png_indices(std::span<const std::byte> bytes);
// Fails beyond kMostPixels, or on a side of 0.
Image blank_image(int64_t height, int64_t width, int channels);

Image to_grey(Image image);    // ITU-R 601-2: (19595 R + 38470 G + 7471 B + 32768) / 65536
Image to_colour(Image image);  // red = green = blue

// size: {height, width}. The filters of Pillow's resize() to the bit; without antialias, bilinear
// between the four nearest pixels, as OpenCV does it. Fails if bicubic without antialias is asked.
Image resize(const Image& image, const Dims& size, ResizeFilter filter, bool antialias);
// For each pixel along a side that becomes `to` long: its source pixel without blending.
std::vector<int64_t> nearest_pixels(int64_t from, int64_t to);
// {height, width} after the shorter side became `side`, as torchvision rounds it.
Dims size_with_shorter_side(const Dims& size, int64_t side);
// The centre, rounded to even as torchvision does. Fails if the image is smaller.
Image centre_crop(const Image& image, const Dims& size);
// {top, left} of that. Fails alike.
Dims crop_corner(const Dims& image, const Dims& crop);

}  // namespace anneal
