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

// Parts of the rows or columns of a matrix as columns of f32: where they lie, or copied.
class CopiedColumns {
 public:
  CopiedColumns(const Tensor& matrix, bool of_columns)
      : matrix_(matrix), of_columns_(of_columns), pitch_(matrix.dims()[1]) {}

  // Elements [begin, begin + length) of `count` rows or columns from `first` on.
  BlockColumns get(int64_t first, int64_t count, int64_t begin, int64_t length) {
    if (of_columns_ && matrix_.dtype() == DataType::kF32)
      return {matrix_.as<float>().data() + begin * pitch_ + first, pitch_, count, length};
    memory_.resize(static_cast<size_t>(count * length));
    switch (matrix_.dtype()) {
      case DataType::kF16:
        copy(matrix_.as<Float16>().data(), first, count, begin, length);
        break;
      case DataType::kBF16:
        copy(matrix_.as<BFloat16>().data(), first, count, begin, length);
        break;
      default:
        copy(matrix_.as<float>().data(), first, count, begin, length);
    }
    return {memory_.data(), count, count, length};
  }

 private:
  template <class T>
  void copy(const T* matrix, int64_t first, int64_t count, int64_t begin, int64_t length) {
    float* const to = memory_.data();
    const T* const from = matrix + (of_columns_ ? begin * pitch_ + first : first * pitch_ + begin);
    if (of_columns_) {
      for (int64_t k = 0; k < length; ++k)
        for (int64_t i = 0; i < count; ++i) to[k * count + i] = real_of(from[k * pitch_ + i]);
      return;
    }
    // Squares of f32 are transposed, the rest of each row is copied by elements.
    const bool has_squares = std::is_same_v<T, float>;
    const int64_t wide = has_squares ? count / 4 * 4 : 0, deep = has_squares ? length / 4 * 4 : 0;
    if constexpr (std::is_same_v<T, float>)
      for (int64_t i = 0; i < wide; i += 4)
        for (int64_t k = 0; k < deep; k += 4)
          cpu::transpose_square(from + i * pitch_ + k, pitch_, to + k * count + i, count);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = i < wide ? deep : 0; k < length; ++k)
        to[k * count + i] = real_of(from[i * pitch_ + k]);
  }

  const Tensor& matrix_;
  bool of_columns_;
  int64_t pitch_;  // from row to row
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
  constexpr int64_t kMostAtOnce = 256, kNumbers = 1 << 16;
  constexpr auto kLeastAtOnce = static_cast<int64_t>(kMostBlocksAtOnce);
  const int64_t rows = matrix.dims()[of_columns ? 1 : 0], depth = matrix.dims()[of_columns ? 0 : 1];
  const IntegerLimits limits = bits == 4 ? kLimitsOf4Bits : IntegerLimits{};
  NewTensor integers = allocate_tensor(DataType::kI8, {rows, depth});
  std::vector<float> scales(static_cast<size_t>(rows * (depth / block)));
  std::vector<double> errors(static_cast<size_t>(rows)), squares(static_cast<size_t>(rows));
  const int64_t together = std::clamp(kNumbers / block, kLeastAtOnce, kMostAtOnce);
  ThreadTeam team(threads > 0 ? threads : hardware_threads());
  team.for_ranges((rows + together - 1) / together, 1, [&](int64_t begin, int64_t end) {
    CopiedColumns columns(matrix, of_columns);
    std::vector<float> memory(static_cast<size_t>(kLeastAtOnce * block));
    std::vector<QuantizedBlock> made(static_cast<size_t>(together));
    for (int64_t first = begin * together; first < std::min(end * together, rows);
         first += together) {
      const int64_t count = std::min(together, rows - first);
      for (int64_t k = 0; k < depth; k += block) {
        auto* const to = reinterpret_cast<int8_t*>(integers.data.data()) + first * depth + k;
        quantize_blocks(columns.get(first, count, k, block), limits, matrix.dtype(), memory, to,
                        depth, made.data());
        for (int64_t i = 0; i < count; ++i) {
          const QuantizedBlock& one = made[static_cast<size_t>(i)];
          scales[static_cast<size_t>(((first + i) * depth + k) / block)] = one.scale;
          errors[static_cast<size_t>(first + i)] += one.error;
          squares[static_cast<size_t>(first + i)] += one.square;
        }
      }
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
