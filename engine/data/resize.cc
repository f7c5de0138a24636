// Resampling as Pillow does it for 8-bit pixels: along rows, then along columns, each with weights
// of 22 fractional bits and rounded to 8 bits.
#include <algorithm>
#include <cmath>

#include "anneal/core/fail.h"
#include "anneal/engine/data/image.h"

namespace anneal {

// The position is summed up step by step, as Pillow does, which decides ties.
std::vector<int64_t> nearest_pixels(int64_t from, int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> pixels;
  for (double at = step * 0.5; static_cast<int64_t>(pixels.size()) < to; at += step)
    pixels.push_back(std::min(static_cast<int64_t>(at), from - 1));
  return pixels;
}

namespace {

constexpr int kFractionBits = 22;

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

double cubic(double x) {  // a = -1/2
  x = std::abs(x);
  if (x < 1) return ((1.5 * x) - 2.5) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * -0.5;
  return 0;
}

int64_t towards_zero(double value) { return static_cast<int64_t>(value); }

// For each pixel of the result the source pixels that it is made of.
struct Weights {
  struct Range {
    int64_t first = 0, count = 0;
    size_t at = 0;  // in values
  };
  std::vector<Range> ranges;
  std::vector<int32_t> values;
};

Weights weights_of(int64_t from, int64_t to, ResizeFilter filter, bool antialias) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = antialias ? std::max(scale, 1.0) : 1.0;
  const double support = (filter == ResizeFilter::kBicubic ? 2.0 : 1.0) * stretch;
  Weights weights;
  std::vector<double> exact;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Weights::Range range;
    range.first = std::max<int64_t>(towards_zero(centre - support + 0.5), 0);
    range.count = std::min<int64_t>(towards_zero(centre + support + 0.5), from) - range.first;
    range.at = weights.values.size();
    exact.clear();
    double sum = 0;
    for (int64_t k = 0; k < range.count; ++k) {
      const double x = (static_cast<double>(k + range.first) - centre + 0.5) * (1 / stretch);
      exact.push_back(filter == ResizeFilter::kBicubic ? cubic(x) : triangle(x));
      sum += exact.back();
    }
    for (double weight : exact) {
      if (sum != 0) weight /= sum;
      weights.values.push_back(
          static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kFractionBits)));
    }
    weights.ranges.push_back(range);
  }
  return weights;
}

// Along one axis; `stride` elements lie between neighbours on it.
void blend(const uint8_t* from, uint8_t* to, int64_t stride, const Weights::Range& range,
           const int32_t* weights, int64_t run) {
  for (int64_t c = 0; c < run; ++c) {
    int32_t sum = 1 << (kFractionBits - 1);
    for (int64_t k = 0; k < range.count; ++k)
      sum += from[(range.first + k) * stride + c] * weights[k];
    to[c] = static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
  }
}

Image resize_rows(const Image& image, int64_t width, ResizeFilter filter, bool antialias) {
  const Weights weights = weights_of(image.width, width, filter, antialias);
  Image resized = blank_image(image.height, width, image.channels);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* from = image.pixels.data() + y * image.width * image.channels;
    uint8_t* to = resized.pixels.data() + y * width * image.channels;
    for (const Weights::Range& range : weights.ranges) {
      blend(from, to, image.channels, range, weights.values.data() + range.at, image.channels);
      to += image.channels;
    }
  }
  return resized;
}

Image resize_columns(const Image& image, int64_t height, ResizeFilter filter, bool antialias) {
  const Weights weights = weights_of(image.height, height, filter, antialias);
  Image resized = blank_image(height, image.width, image.channels);
  const int64_t row = image.width * image.channels;
  for (int64_t y = 0; y < height; ++y) {
    const Weights::Range& range = weights.ranges[static_cast<size_t>(y)];
    blend(image.pixels.data(), resized.pixels.data() + y * row, row, range,
          weights.values.data() + range.at, row);
  }
  return resized;
}

Image resize_nearest(const Image& image, const Dims& size) {
  Image resized = blank_image(size[0], size[1], image.channels);
  const auto columns = nearest_pixels(image.width, size[1]);
  uint8_t* to = resized.pixels.data();
  for (const int64_t y : nearest_pixels(image.height, size[0]))
    for (const int64_t x : columns) {
      std::copy_n(image.pixels.data() + (y * image.width + x) * image.channels, image.channels, to);
      to += image.channels;
    }
  return resized;
}

}  // namespace

Image resize(const Image& image, const Dims& size, ResizeFilter filter, bool antialias) {
  if (filter == ResizeFilter::kBicubic && !antialias)
    fail(ErrorCode::kInvalidArgument, "bicubic works with antialias only");
  blank_image(size[0], size[1], 1);
  if (filter == ResizeFilter::kNearest) return resize_nearest(image, size);
  const Image* source = &image;
  Image rows;
  if (image.width != size[1]) {
    rows = resize_rows(image, size[1], filter, antialias);
    source = &rows;
  }
  return image.height == size[0] ? *source : resize_columns(*source, size[0], filter, antialias);
}

}  // namespace anneal
