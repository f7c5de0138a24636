#include "anneal/optimizer/precision/half_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/precision/constant_statistics.h"

namespace anneal {
namespace {

// Of the weights of a channel: the most that rounding may cost, relative, as root of mean squares.
constexpr double kWeightsError = 0x1p-8;
// Channels that are weaker than the strongest one by this factor do not count.
constexpr double kWeakChannel = 0x1p-10;

float float_of_half(uint16_t bits, DataType half) {
  return half == DataType::kF16 ? to_f32(Float16{bits}) : to_f32(BFloat16{bits});
}

bool is_f16_number(float number) {
  return std::isfinite(number) && in_half(number, DataType::kF16) == number;
}
bool is_bf16_number(float number) {
  return std::isfinite(number) && in_half(number, DataType::kBF16) == number;
}

// Numbers that a thread takes at once.
constexpr int64_t kAtOnce = 1 << 16;

// Whether is(i) holds for all i < count. at_once: of a thread.
template <class Is>
bool are_all(size_t count, int threads, Is&& is, int64_t at_once = kAtOnce) {
  std::atomic<bool> are_all = true;
  ThreadTeam(threads > 0 ? threads : hardware_threads())
      .for_ranges(static_cast<int64_t>(count), at_once, [&](int64_t begin, int64_t end) {
        if (!are_all) return;
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
          if (!is(i)) {
            are_all = false;
            return;
          }
      });
  return are_all;
}

// Whether no number has all bits of the exponent.
template <class Bits>
bool no_exponent_is_full(const Tensor& numbers, Bits exponent, int threads) {
  constexpr size_t kBlock = 64;  // a fixed number, for the compiler's vectors
  const auto* const bits = reinterpret_cast<const Bits*>(numbers.bytes().data());
  const auto count = static_cast<size_t>(numbers.count());
  const auto is_finite = [&](size_t block) {
    const Bits* const of_block = bits + block * kBlock;
    Bits found = 0;
    if (const size_t rest = count - block * kBlock; rest < kBlock) {
      for (size_t i = 0; i < rest; ++i) found |= (of_block[i] & exponent) == exponent;
    } else {
      for (size_t i = 0; i < kBlock; ++i) found |= (of_block[i] & exponent) == exponent;
    }
    return found == 0;
  };
  return are_all(count / kBlock + 1, threads, is_finite, kAtOnce / kBlock);
}

// to[i] = f(i)
template <class T, class F>
Tensor made_of(DataType dtype, const Dims& dims, int threads, F&& f) {
  NewTensor made = allocate_tensor(dtype, dims);
  auto* const to = reinterpret_cast<T*>(made.data.data());
  ThreadTeam(threads > 0 ? threads : hardware_threads())
      .for_ranges(count(dims), kAtOnce, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) to[i] = f(i);
      });
  return made.tensor;
}

}  // namespace

std::optional<DataType> half_of_numbers(std::span<const float> numbers, int threads) {
  if (are_all(numbers.size(), threads, [&](size_t i) { return is_f16_number(numbers[i]); }))
    return DataType::kF16;
  if (are_all(numbers.size(), threads, [&](size_t i) { return is_bf16_number(numbers[i]); }))
    return DataType::kBF16;
  return std::nullopt;
}

bool are_kept_by(const ProductNorms& norms, DataType half, double most) {
  // The errors of normal numbers are u / (1 + u) of them at most, with u half of the last place of
  // 1. Those of subnormal numbers are half of the least one.
  const double unit = half == DataType::kF16 ? 0x1p-11 : 0x1p-8;
  const double relative = unit / (1 + unit), absolute = half == DataType::kF16 ? 0x1p-25 : 0x1p-134;
  const double lost =
      relative * relative * norms.weakest + absolute * absolute * norms.weights_per_channel;
  return norms.weakest > 0 && lost <= most * most * norms.weakest &&
         std::isfinite(in_half(static_cast<float>(norms.most), half));
}

std::string why_weights_suffer(const Graph& graph, LayerId id, const Tensor& weights,
                               DataType dtype, const ProductNorms* norms, int threads) {
  if (norms != nullptr && are_kept_by(*norms, dtype, kWeightsError)) return {};
  const ChannelLosses losses =
      channel_losses(weights.as<float>(), channel_weights(graph, id), dtype, threads);
  const float largest = std::ranges::max(losses.most);
  if (std::isinf(in_half(largest, dtype)))
    return fmt::format("a weight of magnitude {:g} is beyond {}", largest, to_string(dtype));
  const double strongest = std::ranges::max(losses.squares);
  const size_t channels = losses.most.size();
  size_t harmed = 0;
  for (size_t c = 0; c < channels; ++c)
    harmed += losses.squares[c] > 0 &&
              losses.squares[c] >= strongest * kWeakChannel * kWeakChannel &&
              losses.lost[c] > losses.squares[c] * kWeightsError * kWeightsError;
  // bf16 costs every weight up to 2^-8, and a channel less than that.
  if (harmed == 0) return {};
  return fmt::format("the weights of {} of {} channels are too small for {}", harmed, channels,
                     to_string(dtype));
}

Tensor in_16_bits(const Tensor& floats, DataType half, int threads) {
  const std::span<const float> from = floats.as<float>();
  return made_of<uint16_t>(half, floats.dims(), threads,
                           [&](size_t i) { return half_bits(from[i], half); });
}

Tensor in_32_bits(const Tensor& halves, int threads) {
  const auto* const from = reinterpret_cast<const uint16_t*>(halves.bytes().data());
  const DataType half = halves.dtype();
  return made_of<float>(DataType::kF32, halves.dims(), threads,
                        [&](size_t i) { return float_of_half(from[i], half); });
}

bool are_all_finite(const Tensor& floats, int threads) {
  if (floats.dtype() == DataType::kF32)
    return no_exponent_is_full<uint32_t>(floats, 0x7f800000, threads);
  return no_exponent_is_full<uint16_t>(floats, floats.dtype() == DataType::kF16 ? 0x7c00 : 0x7f80,
                                       threads);
}

bool are_numbers_of(const Tensor& floats, const Tensor& halves, int threads) {
  const std::span<const float> numbers = floats.as<float>();
  const auto* const bits = reinterpret_cast<const uint16_t*>(halves.bytes().data());
  const DataType half = halves.dtype();
  return are_all(numbers.size(), threads, [&](size_t i) {
    return std::bit_cast<uint32_t>(numbers[i]) ==
           std::bit_cast<uint32_t>(float_of_half(bits[i], half));
  });
}

}  // namespace anneal
