#include "anneal/optimizer/precision/quantized_weights.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/base/transpose_square.h"
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
    // Squares of f32 are transposed; the other columns and rows are copied by elements.
    const bool has_squares = std::is_same_v<T, float>;
    const int64_t in_squares = has_squares ? count / 4 * 4 : 0;
    const int64_t deep = has_squares ? depth_ / 4 * 4 : 0;
    if constexpr (std::is_same_v<T, float>)
      for (int64_t k = 0; k < deep; k += 4)
        for (int64_t row = 0; row < in_squares; row += 4)
          cpu::transpose_square(matrix + k * rows_ + first + row, rows_, to + row * stride() + k,
                                stride());
    const T* from = matrix + first;
    for (int64_t k = 0; k < depth_; ++k, from += rows_)
      for (int64_t row = k < deep ? in_squares : 0; row < count; ++row)
        to[row * stride() + k] = real_of(from[row]);
  }

  const Tensor& matrix_;
  bool of_columns_;
  int64_t rows_, depth_;
  std::vector<float> memory_;
};

}  // namespace

std::string why_not_quantized(const Tensor& weights, int64_t axis) {
  if (!are_all_finite(weights)) return "its weights are not all finite";
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
  constexpr int64_t kTogether = 32;  // columns that share lines of the cache
  const int64_t rows = matrix.dims()[of_columns ? 1 : 0], depth = matrix.dims()[of_columns ? 0 : 1];
  const IntegerLimits limits = bits == 4 ? kLimitsOf4Bits : IntegerLimits{};
  NewTensor integers = allocate_tensor(DataType::kI8, {rows, depth});
  std::vector<float> scales(static_cast<size_t>(rows * (depth / block)));
  std::vector<double> errors(static_cast<size_t>(rows)), squares(static_cast<size_t>(rows));
  const auto quantize = [&](int64_t row, std::span<const float> weights, std::span<float> memory) {
    auto* to = reinterpret_cast<int8_t*>(integers.data.data()) + row * depth;
    const auto at = static_cast<size_t>(row);
    for (int64_t begin = 0; begin < depth; begin += block, to += block) {
      const QuantizedBlock made =
          quantize_block(weights.subspan(static_cast<size_t>(begin), static_cast<size_t>(block)),
                         limits, matrix.dtype(), memory, to);
      scales[static_cast<size_t>((row * depth + begin) / block)] = made.scale;
      errors[at] += made.error;
      squares[at] += made.square;
    }
  };
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  const int64_t parts = (rows + kTogether - 1) / kTogether;
  team.for_ranges(parts, 1, [&](int64_t begin, int64_t end) {
    CopiedRows copied(matrix, of_columns);
    std::vector<float> memory(static_cast<size_t>(block));
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
