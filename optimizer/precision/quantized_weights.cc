#include "anneal/optimizer/precision/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/precision/fit_weights.h"
#include "anneal/optimizer/precision/half_weights.h"

namespace anneal {
namespace {

constexpr double kMostI8 = 127, kMostU8 = 255;

// A scale that is a normal number, so that quotients by it are finite.
float scale_of(double extent, double steps) {
  const auto scale = static_cast<float>(extent / steps);
  return scale >= 1e-30F ? scale : 1.0F;
}

// Products of 8-bit numbers that a sum of 32 bits holds for certain.
constexpr int64_t kMostProducts = (int64_t{1} << 31) / (255 * 128);

float real_of(float number) { return number; }
float real_of(Float16 number) { return to_f32(number); }
float real_of(BFloat16 number) { return to_f32(number); }

// A few rows or columns of a matrix as f32, each contiguous. Between them lies a line of the cache:
// else those of a length that is a power of two would share a set of it.
class CopiedRows {
 public:
  CopiedRows(const Tensor& matrix, bool of_columns)
      : matrix_(matrix),
        of_columns_(of_columns),
        rows_(matrix.dims()[of_columns ? 1 : 0]),
        depth_(matrix.dims()[of_columns ? 0 : 1]) {}

  void copy(int64_t first, int64_t count) {
    memory_.resize(static_cast<size_t>(count * stride()));
    switch (matrix_.dtype()) {
      case DataType::kF16:
        return copy(matrix_.as<Float16>().data(), first, count);
      case DataType::kBF16:
        return copy(matrix_.as<BFloat16>().data(), first, count);
      default:
        return copy(matrix_.as<float>().data(), first, count);
    }
  }
  std::span<const float> operator[](int64_t row) const {
    return std::span(memory_).subspan(static_cast<size_t>(row * stride()),
                                      static_cast<size_t>(depth_));
  }

 private:
  int64_t stride() const { return depth_ + 16; }
  template <class T>
  void copy(const T* matrix, int64_t first, int64_t count) {
    float* const to = memory_.data();
    if (!of_columns_) {
      for (int64_t row = 0; row < count; ++row)
        std::transform(matrix + (first + row) * depth_, matrix + (first + row + 1) * depth_,
                       to + row * stride(), [](T number) { return real_of(number); });
      return;
    }
    const T* from = matrix + first;
    for (int64_t k = 0; k < depth_; ++k, from += rows_)
      for (int64_t row = 0; row < count; ++row) to[row * stride() + k] = real_of(from[row]);
  }

  const Tensor& matrix_;
  bool of_columns_;
  int64_t rows_, depth_;
  std::vector<float> memory_;
};

// In parts of a fixed length, which the compiler makes vectors of.
void round_to(std::span<const float> weights, float scale, IntegerLimits limits, int8_t* to) {
  constexpr size_t kPart = 8;
  size_t i = 0;
  for (; i + kPart <= weights.size(); i += kPart)
    for (size_t k = i; k < i + kPart; ++k)
      to[k] = static_cast<int8_t>(integer_of(weights[k], scale, limits));
  for (; i < weights.size(); ++i)
    to[i] = static_cast<int8_t>(integer_of(weights[i], scale, limits));
}

float in_type(double scale, DataType dtype) {
  if (dtype == DataType::kF16) return to_f32(to_f16(scale));
  const auto rounded = static_cast<float>(scale);
  return dtype == DataType::kBF16 ? to_f32(to_bf16(rounded)) : rounded;
}

// One block. Scales are fitted to weights that a power of two has brought near 1, so that no square
// of a weight leaves f32.
class Block {
 public:
  Block(std::span<const float> weights, std::vector<float>& memory) {
    float largest = 0;
    for (const float weight : weights) largest = std::max(largest, std::abs(weight));
    if (largest > 0) exponent_ = std::ilogb(largest);
    memory.resize(weights.size());
    const double factor = std::ldexp(1.0, -exponent_);
    for (size_t i = 0; i < weights.size(); ++i) memory[i] = static_cast<float>(weights[i] * factor);
    near_1_ = memory;
  }

  // The scale, of the type; integers go to `to`.
  float quantize(IntegerLimits limits, DataType dtype, int8_t* to) {
    const float fitted = fitted_block_scale(near_1_, limits);
    float scale = in_type(std::ldexp(double{fitted}, exponent_), dtype);
    if (scale == 0) scale = dtype == DataType::kF16 ? 0x1p-24F : 0x1p-126F;
    const auto scale_near_1 = static_cast<float>(std::ldexp(double{scale}, -exponent_));
    round_to(near_1_, scale_near_1, limits, to);
    error_ = rounding_error(near_1_, scale_near_1, limits);
    return scale;
  }

  double error() const { return std::ldexp(error_, 2 * exponent_); }
  double square() const { return std::ldexp(sum_of_squares(near_1_), 2 * exponent_); }

 private:
  int exponent_ = 0;
  std::span<const float> near_1_;
  double error_ = 0;
};

}  // namespace

std::string why_not_quantized(const Tensor& weights, int64_t axis) {
  const auto values = weights.as<float>();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    return "its weights are not all finite";
  const int64_t channels = weights.dims()[static_cast<int>(axis)];
  if (channels == 0 || weights.count() == 0) return "it has no weights";
  if (weights.count() / channels > kMostProducts)
    return "a sum of this many products may overflow 32 bits";
  return {};
}

Scaling scaling_for(const TensorRange& range, bool symmetric) {
  const double low = std::min(0.0, double{range.min}), high = std::max(0.0, double{range.max});
  Scaling scaling;
  scaling.zeros = {0};
  if (symmetric && low < 0) {
    scaling.integer = DataType::kI8;
    scaling.scales = {scale_of(std::max(-low, high), kMostI8)};
    return scaling;
  }
  scaling.integer = DataType::kU8;
  scaling.scales = {scale_of(high - low, kMostU8)};
  const double zero = std::nearbyint(-low / double{scaling.scales[0]});
  scaling.zeros = {static_cast<int32_t>(std::clamp(zero, 0.0, kMostU8))};
  return scaling;
}

QuantizedWeights quantize_channels(const Tensor& weights, int64_t axis, bool fitted) {
  const Dims& dims = weights.dims();
  int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < dims.rank(); ++i) inner *= dims[i];
  const int64_t channels = dims[static_cast<int>(axis)];
  const auto values = weights.as<float>();
  Scaling scaling;
  scaling.integer = DataType::kI8;
  scaling.axis = channels > 1 ? axis : 0;
  scaling.zeros = {0};
  NewTensor fresh = allocate_tensor(DataType::kI8, dims);
  auto* integers = reinterpret_cast<int8_t*>(fresh.data.data());
  const int64_t row = channels * inner;
  const auto for_each = [&](int64_t channel, const auto& body) {
    for (int64_t begin = channel * inner; begin < weights.count(); begin += row)
      for (int64_t i = begin; i < begin + inner; ++i) body(static_cast<size_t>(i));
  };
  std::vector<float> own;  // the weights of one channel
  for (int64_t channel = 0; channel < channels; ++channel) {
    own.clear();
    for_each(channel, [&](size_t i) { own.push_back(values[i]); });
    float most = 0;
    for (const float value : own) most = std::max(most, std::abs(value));
    float scale = scale_of(most, kMostI8);
    if (fitted) scale = fitted_scale(own, scale);
    scaling.scales.push_back(scale);
    for_each(channel, [&](size_t i) {
      const double q = std::nearbyint(values[i] / scale);
      integers[i] = static_cast<int8_t>(std::clamp(q, -kMostI8, kMostI8));
    });
  }
  return {fresh.tensor, std::move(scaling)};
}

QuantizedRows quantize_rows(const Tensor& matrix, bool of_columns, int bits, int64_t block,
                            int threads) {
  constexpr int64_t kTogether = 16;  // columns that share a line of the cache
  const int64_t rows = matrix.dims()[of_columns ? 1 : 0], depth = matrix.dims()[of_columns ? 0 : 1];
  const IntegerLimits limits = bits == 4 ? kLimitsOf4Bits : IntegerLimits{};
  NewTensor integers = allocate_tensor(DataType::kI8, {rows, depth});
  std::vector<float> scales(static_cast<size_t>(rows * (depth / block)));
  std::vector<double> errors(static_cast<size_t>(rows)), squares(static_cast<size_t>(rows));
  const auto quantize = [&](int64_t row, std::span<const float> weights,
                            std::vector<float>& memory) {
    auto* to = reinterpret_cast<int8_t*>(integers.data.data()) + row * depth;
    const auto at = static_cast<size_t>(row);
    for (int64_t begin = 0; begin < depth; begin += block, to += block) {
      Block one(weights.subspan(static_cast<size_t>(begin), static_cast<size_t>(block)), memory);
      scales[static_cast<size_t>((row * depth + begin) / block)] =
          one.quantize(limits, matrix.dtype(), to);
      errors[at] += one.error();
      squares[at] += one.square();
    }
  };
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  const int64_t parts = (rows + kTogether - 1) / kTogether;
  team.for_ranges(parts, 1, [&](int64_t begin, int64_t end) {
    CopiedRows copied(matrix, of_columns);
    std::vector<float> memory;
    for (int64_t first = begin * kTogether; first < std::min(end * kTogether, rows);
         first += kTogether) {
      const int64_t count = std::min(kTogether, rows - first);
      copied.copy(first, count);
      for (int64_t row = 0; row < count; ++row) quantize(first + row, copied[row], memory);
    }
  });
  double error = 0, square = 0;
  for (const double each : errors) error += each;
  for (const double each : squares) square += each;
  const Tensor factors =
      Tensor::of<float>(DataType::kF32, {rows, depth / block}, std::span<const float>(scales));
  return {integers.tensor, is_half(matrix.dtype()) ? in_16_bits(factors, matrix.dtype()) : factors,
          square > 0 ? std::sqrt(error / square) : 0};
}

}  // namespace anneal
