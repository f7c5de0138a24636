#include "anneal/engine/builder/timing/result_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "anneal/core/float16.h"

namespace anneal {
namespace {

template <class T, class Read>
std::vector<double> numbers_of(std::span<const std::byte> bytes, const Read& read) {
  std::vector<double> numbers(bytes.size() / sizeof(T));
  for (size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
    numbers[i] = static_cast<double>(read(value));
  }
  return numbers;
}

constexpr auto kItself = [](auto value) { return value; };

// Empty: compared as bytes.
std::vector<double> numbers(DataType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DataType::kF32:
      return numbers_of<float>(bytes, kItself);
    case DataType::kF64:
      return numbers_of<double>(bytes, kItself);
    case DataType::kF16:
      return numbers_of<Float16>(bytes, [](Float16 x) { return to_f32(x); });
    case DataType::kBF16:
      return numbers_of<BFloat16>(bytes, [](BFloat16 x) { return to_f32(x); });
    case DataType::kI8:
      return numbers_of<int8_t>(bytes, kItself);
    case DataType::kU8:
      return numbers_of<uint8_t>(bytes, kItself);
    default:
      return {};
  }
}

// Of the largest number. TF32, which some kernels multiply f32 in, has ten bits.
double allowed(DataType dtype, double largest) {
  switch (dtype) {
    case DataType::kF32:
      return 4e-3 * largest;
    case DataType::kF64:
      return 1e-10 * largest;
    case DataType::kF16:
      return 1e-2 * largest;
    case DataType::kBF16:
      return 6e-2 * largest;
    default:
      return 1;
  }
}

}  // namespace

std::string result_difference(DataType dtype, std::span<const std::byte> result,
                              std::span<const std::byte> wanted) {
  if (std::ranges::equal(result, wanted)) return {};
  const std::vector<double> got = numbers(dtype, result), want = numbers(dtype, wanted);
  if (got.empty()) return "other bytes";
  double largest = 0, difference = 0;
  size_t lost = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    if (std::isfinite(got[i]) != std::isfinite(want[i]))
      ++lost;
    else if (std::isfinite(got[i]))
      difference = std::max(difference, std::abs(got[i] - want[i]));
  }
  if (lost > 0) return fmt::format("{} elements are finite in one result alone", lost);
  if (difference <= allowed(dtype, largest)) return {};
  return fmt::format("a difference of {:.3g} where the largest element is {:.3g}", difference,
                     largest);
}

}  // namespace anneal
