#include "anneal/optimizer/precision/four_bit_weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "anneal/core/new_tensor.h"

namespace anneal {
namespace {

constexpr int kMostCode = 15, kMiddle = 8;

struct Ends {
  int low = 0, high = 0;
};

template <class T>
Ends ends_of(std::span<const T> numbers) {
  const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  return {int{*low}, int{*high}};
}

Ends ends_of(const Tensor& integers) {
  return integers.dtype() == DataType::kI8 ? ends_of(integers.as<int8_t>())
                                           : ends_of(integers.as<uint8_t>());
}

int integer_at(const Tensor& integers, size_t i) {
  return integers.dtype() == DataType::kI8 ? int{integers.as<int8_t>()[i]}
                                           : int{integers.as<uint8_t>()[i]};
}

template <class T>
Tensor transposed_matrix(const Tensor& matrix) {
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  NewTensor made = allocate_tensor(matrix.dtype(), {columns, rows});
  const auto from = matrix.as<T>();
  auto* to = reinterpret_cast<T*>(made.data.data());
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row)
      *to++ = from[static_cast<size_t>(row * columns + column)];
  return made.tensor;
}

// The number that is subtracted from the integers: one that makes all zero points 8, if there is,
// else one that makes none negative, if there is.
int shift_of(const Ends& ends, const std::optional<Ends>& zeros) {
  const Ends zero = zeros.value_or(Ends{});
  const int wanted = zero.low - kMiddle;
  const bool serves =
      zero.low == zero.high && wanted <= ends.low && ends.high <= wanted + kMostCode;
  if (serves) return wanted;
  return ends.high - zero.low <= kMostCode ? std::min(ends.low, zero.low) : ends.low;
}

template <class T>
Tensor codes_of(const Tensor& integers, int shift) {
  const int64_t columns = integers.dims()[0], depth = integers.dims()[1];
  NewTensor made = allocate_tensor(DataType::kU8, {columns, depth / 2});
  const T* from = integers.as<T>().data();
  for (std::byte& to : made.data) {
    const int low = from[0] - shift, high = from[1] - shift;
    to = static_cast<std::byte>(low | high << 4);
    from += 2;
  }
  return made.tensor;
}

}  // namespace

std::optional<FourBitWeights> in_4_bits(const Tensor& integers, const Tensor& scales,
                                        const Tensor* zeros, bool transposed) {
  if (integers.count() == 0 || integers.dims()[transposed ? 1 : 0] % 2 != 0) return std::nullopt;
  const Ends ends = ends_of(integers);
  if (ends.high - ends.low > kMostCode) return std::nullopt;
  std::optional<Ends> zero_ends;
  if (zeros) zero_ends = ends_of(*zeros);
  const int shift = shift_of(ends, zero_ends);
  const Ends zero = zero_ends.value_or(Ends{});
  if (zero.low - shift < 0 || zero.high - shift > 255) return std::nullopt;
  const bool is_signed = integers.dtype() == DataType::kI8;
  const auto in_rows = [&](const Tensor& matrix) {
    if (transposed) return matrix;
    if (matrix.dtype() == DataType::kF32) return transposed_matrix<float>(matrix);
    return is_signed ? transposed_matrix<int8_t>(matrix) : transposed_matrix<uint8_t>(matrix);
  };
  const Tensor rows = in_rows(integers);
  FourBitWeights made{
      .codes = is_signed ? codes_of<int8_t>(rows, shift) : codes_of<uint8_t>(rows, shift),
      .scales = in_rows(scales),
      .zeros = {}};
  if (zero.low - shift == kMiddle && zero.high - shift == kMiddle) return made;
  NewTensor moved = allocate_tensor(DataType::kU8, made.scales.dims());
  const std::optional<Tensor> given = zeros ? std::optional(in_rows(*zeros)) : std::nullopt;
  for (size_t i = 0; i < moved.data.size(); ++i)
    moved.data[i] = static_cast<std::byte>((given ? integer_at(*given, i) : 0) - shift);
  made.zeros = moved.tensor;
  return made;
}

Tensor unpacked_4_bits(const Tensor& codes) {
  NewTensor made = allocate_tensor(DataType::kU8, {codes.dims()[0], 2 * codes.dims()[1]});
  std::byte* to = made.data.data();
  for (const uint8_t byte : codes.as<uint8_t>()) {
    *to++ = static_cast<std::byte>(byte & kMostCode);
    *to++ = static_cast<std::byte>(byte >> 4);
  }
  return made.tensor;
}

}  // namespace anneal
