// Constants in the text form: elements out and in, and made ones.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal::text {
namespace {

constexpr int64_t kMostRandomElements = 1 << 28;

// Calls f with a value of the C++ type that stores dtype.
template <class F>
void with_storage(DataType dtype, F&& f) {
  switch (dtype) {
    case DataType::kF32:
      return f(float{});
    case DataType::kF64:
      return f(double{});
    case DataType::kF16:
      return f(Float16{});
    case DataType::kBF16:
      return f(BFloat16{});
    case DataType::kI8:
      return f(int8_t{});
    case DataType::kI16:
      return f(int16_t{});
    case DataType::kI32:
      return f(int32_t{});
    case DataType::kI64:
      return f(int64_t{});
    case DataType::kU8:
      return f(uint8_t{});
    case DataType::kU16:
      return f(uint16_t{});
    case DataType::kU32:
      return f(uint32_t{});
    case DataType::kU64:
      return f(uint64_t{});
    case DataType::kBool:
      return f(bool{});
    case DataType::kString:
      break;
  }
  fail(ErrorCode::kInvalidArgument, "a constant of strings");
}

template <class T>
struct BitsOf {
  using Type = uint16_t;  // Float16, BFloat16
};
template <>
struct BitsOf<float> {
  using Type = uint32_t;
};
template <>
struct BitsOf<double> {
  using Type = uint64_t;
};

float widened(float value) { return value; }
double widened(double value) { return value; }
float widened(Float16 value) { return to_f32(value); }
float widened(BFloat16 value) { return to_f32(value); }

void narrow(float value, float& to) { to = value; }
void narrow(double value, double& to) { to = value; }
void narrow(double value, Float16& to) { to = to_f16(value); }
void narrow(float value, BFloat16& to) { to = to_bf16(value); }
// The type that a text is parsed as, so that it is rounded once.
template <class T>
using Read =
    std::conditional_t<std::is_same_v<T, double> || std::is_same_v<T, Float16>, double, float>;

template <class T>
T default_nan() {
  T value;
  narrow(std::numeric_limits<Read<T>>::quiet_NaN(), value);
  return value;
}

template <class T>
std::string element_text(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    using Bits = typename BitsOf<T>::Type;
    if (!std::isnan(widened(value))) return fmt::format("{}", widened(value));
    const auto bits = std::bit_cast<Bits>(value);
    return bits == std::bit_cast<Bits>(default_nan<T>()) ? "nan" : fmt::format("{:#x}", bits);
  }
}

template <class T>
bool read(std::string_view text, T& value, int base = 10) {
  if constexpr (std::is_integral_v<T>) {
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return end.ec == std::errc() && end.ptr == text.data() + text.size();
  } else {
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    return end.ec == std::errc() && end.ptr == text.data() + text.size();
  }
}

template <class T>
bool read_element(std::string_view text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = text == "true";
    return value || text == "false";
  } else if constexpr (std::is_integral_v<T>) {
    return read(text, value);
  } else if (text == "nan") {
    value = default_nan<T>();
    return true;
  } else if (text.starts_with("0x")) {
    typename BitsOf<T>::Type bits;
    if (!read(text.substr(2), bits, 16)) return false;
    value = std::bit_cast<T>(bits);
    return true;
  } else {
    Read<T> wide;
    if (!read(text, wide)) return false;
    narrow(wide, value);
    return true;
  }
}

// SplitMix64.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // The sum of twelve uniform numbers less its mean: variance 1, and no library function in it.
  float normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::string elements_text(const Tensor& tensor) {
  std::string text;
  with_storage(tensor.dtype(), [&](auto kind) {
    for (const auto& element : tensor.as<decltype(kind)>()) {
      if (!text.empty()) text += ", ";
      text += element_text(element);
    }
  });
  return text;
}

Tensor tensor_of(DataType dtype, const Dims& dims, const std::vector<std::string_view>& elements) {
  if (count(dims) != static_cast<int64_t>(elements.size()))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} elements for {}{}", elements.size(), to_string(dtype), to_string(dims)));
  std::optional<Tensor> tensor;
  with_storage(dtype, [&](auto kind) {
    auto fresh = allocate_tensor(dtype, dims);
    auto* to = reinterpret_cast<decltype(kind)*>(fresh.data.data());
    for (std::string_view element : elements)
      if (!read_element(element, *to++))
        fail(ErrorCode::kInvalidArgument,
             fmt::format("\"{}\" is no {}", element, to_string(dtype)));
    tensor = std::move(fresh.tensor);
  });
  return *std::move(tensor);
}

Tensor random_tensor(DataType dtype, const Dims& dims, uint64_t seed) {
  if (count(dims) > kMostRandomElements)
    fail(ErrorCode::kInvalidArgument, fmt::format("random elements for {}", to_string(dims)));
  std::optional<Tensor> tensor;
  with_storage(dtype, [&](auto kind) {
    using T = decltype(kind);
    Numbers numbers(seed);
    auto fresh = allocate_tensor(dtype, dims);
    auto* to = reinterpret_cast<T*>(fresh.data.data());
    for (int64_t i = 0; i < count(dims); ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        to[i] = numbers.next() % 2 != 0;
      } else if constexpr (std::is_integral_v<T>) {
        const auto small = static_cast<int>(numbers.next() % 16);
        to[i] = static_cast<T>(std::is_signed_v<T> ? small - 8 : small);
      } else {
        narrow(numbers.normal(), to[i]);
      }
    }
    tensor = std::move(fresh.tensor);
  });
  return *std::move(tensor);
}

}  // namespace anneal::text
