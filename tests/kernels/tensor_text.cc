#include "anneal/tests/kernels/tensor_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/program/program.h"

namespace anneal::testing {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no tensor", text));
}

// xorshift64*, so that the numbers are the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  double unit() {  // in [0, 1)
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return static_cast<double>((state_ * 0x2545f4914f6cdd1du) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

void put(DataType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DataType::kF64:
      return store_scalar(dtype, Scalar::of(value), to);
    case DataType::kF32:
      return store_scalar(dtype, Scalar::of(static_cast<float>(value)), to);
    case DataType::kF16:
      *reinterpret_cast<Float16*>(to) = to_f16(value);
      return;
    case DataType::kBF16:
      *reinterpret_cast<BFloat16*>(to) = to_bf16(static_cast<float>(value));
      return;
    default:
      return store_scalar(dtype, Scalar::of(static_cast<int64_t>(value)), to);
  }
}

Dims parse_dims(std::string_view text) {
  Dims dims;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    dims.push_back(std::atoll(std::string(text.substr(0, comma)).c_str()));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return dims;
}

double parse_number(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str()) refuse(text);
  return value;
}

// An integer keeps all of its 64 bits, which a double does not hold.
void put_text(DataType dtype, std::string_view text, std::byte* to) {
  int64_t integer = 0;
  const char* end = text.data() + text.size();
  if (!is_float(dtype) && std::from_chars(text.data(), end, integer).ptr == end && !text.empty())
    return store_scalar(dtype, Scalar::of(integer), to);
  put(dtype, parse_number(text), to);
}

}  // namespace

Tensor tensor_from_text(std::string_view text, uint64_t seed) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == text.npos || close == text.npos) refuse(text);
  const auto dtype = dtype_from_name(text.substr(0, open));
  if (!dtype) refuse(text);
  auto fresh = allocate_tensor(*dtype, parse_dims(text.substr(open + 1, close - open - 1)));
  const int64_t elements = fresh.tensor.count();
  const auto element_size = static_cast<int64_t>(size_of(*dtype));
  const auto set = [&](int64_t i, double value) {
    put(*dtype, value, fresh.data.data() + i * element_size);
  };

  std::string_view values = text.substr(close + 1);
  if (values.substr(0, 1) == "=") values.remove_prefix(1);
  if (values.substr(0, 1) == "{") {
    values = values.substr(1, values.find('}') - 1);
    for (int64_t i = 0; i < elements; ++i) {
      if (values.empty()) refuse(text);
      const size_t comma = std::min(values.find(','), values.size());
      put_text(*dtype, values.substr(0, comma), fresh.data.data() + i * element_size);
      values.remove_prefix(std::min(comma + 1, values.size()));
    }
    if (!values.empty()) refuse(text);
    return fresh.tensor;
  }
  if (values == "iota") {
    for (int64_t i = 0; i < elements; ++i) set(i, static_cast<double>(i));
    return fresh.tensor;
  }
  double low = is_float(*dtype) ? -2 : is_signed_integer(*dtype) ? -9 : 0;
  double high = is_float(*dtype) ? 2 : *dtype == DataType::kBool ? 1 : 9;
  if (const size_t dots = values.find(".."); dots != values.npos) {
    low = parse_number(values.substr(0, dots));
    high = parse_number(values.substr(dots + 2));
  } else if (!values.empty()) {
    refuse(text);
  }
  Random random(seed);
  for (int64_t i = 0; i < elements; ++i) {
    const double unit = random.unit();
    set(i,
        is_float(*dtype) ? low + unit * (high - low) : std::floor(low + unit * (high - low + 1)));
  }
  return fresh.tensor;
}

double element(const Tensor& tensor, int64_t i) {
  const std::byte* from = tensor.bytes().data() + i * static_cast<int64_t>(size_of(tensor.dtype()));
  const Scalar value = load_scalar(tensor.dtype(), from);
  switch (register_type(tensor.dtype())) {
    case RegisterType::kF32:
      return value.as<float>();
    case RegisterType::kF64:
      return value.as<double>();
    case RegisterType::kI32:
      return value.as<int32_t>();
    case RegisterType::kI64:
      return static_cast<double>(value.as<int64_t>());
    case RegisterType::kU32:
      return value.as<uint32_t>();
    case RegisterType::kU64:
      return static_cast<double>(value.as<uint64_t>());
    case RegisterType::kBool:
      return value.as<uint8_t>() != 0 ? 1 : 0;
  }
  return 0;
}

std::optional<std::string> difference(const Tensor& got, const Tensor& wanted, double tolerance) {
  if (got.dtype() != wanted.dtype() || !(got.dims() == wanted.dims()))
    return fmt::format("{}{} instead of {}{}", to_string(got.dtype()), to_string(got.dims()),
                       to_string(wanted.dtype()), to_string(wanted.dims()));
  if (!is_float(wanted.dtype()) && got == wanted) return std::nullopt;
  double magnitude = 0, worst = -1;
  int64_t where = 0;
  for (int64_t i = 0; i < wanted.count(); ++i)
    if (const double value = std::abs(element(wanted, i)); std::isfinite(value))
      magnitude = std::max(magnitude, value);
  const double allowed = is_float(wanted.dtype()) ? tolerance * magnitude : 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double a = element(got, i), b = element(wanted, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double apart = std::abs(a - b);
    if (apart <= allowed) continue;
    if (std::isnan(apart) || apart > worst) {
      worst = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
      where = i;
    }
  }
  if (worst < 0) return std::nullopt;
  return fmt::format("element {} of {}{} is {} instead of {} (allowed: {})", where,
                     to_string(wanted.dtype()), to_string(wanted.dims()), element(got, where),
                     element(wanted, where), allowed);
}

double default_tolerance(DataType dtype) {
  switch (dtype) {
    case DataType::kF64:
      return 1e-12;
    case DataType::kF32:
      return 1e-5;
    case DataType::kF16:
      return 2e-3;
    case DataType::kBF16:
      return 1.6e-2;
    default:
      return 0;
  }
}

}  // namespace anneal::testing
