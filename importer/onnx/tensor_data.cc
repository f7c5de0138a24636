#include "anneal/importer/onnx/tensor_data.h"

#include <fmt/format.h>

#include <memory>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/float16.h"

namespace anneal {
namespace {

// Calls f with each element as its C++ type.
template <class F>
void for_each_element(const Tensor& tensor, F&& f) {
  const auto visit = [&]<class T>(T) {
    for (const T value : tensor.as<T>()) f(value);
  };
  switch (tensor.dtype()) {
    case DataType::kF32:
      return visit(float{});
    case DataType::kF64:
      return visit(double{});
    case DataType::kF16:
      return visit(Float16{});
    case DataType::kBF16:
      return visit(BFloat16{});
    case DataType::kI8:
      return visit(int8_t{});
    case DataType::kI16:
      return visit(int16_t{});
    case DataType::kI32:
      return visit(int32_t{});
    case DataType::kI64:
      return visit(int64_t{});
    case DataType::kU8:
    case DataType::kBool:
      return visit(uint8_t{});
    case DataType::kU16:
      return visit(uint16_t{});
    case DataType::kU32:
      return visit(uint32_t{});
    case DataType::kU64:
      return visit(uint64_t{});
    case DataType::kString:
      break;
  }
  check(false, "a tensor of numbers");
}

}  // namespace

std::vector<int64_t> integers_of(const Tensor& tensor) {
  if (is_float(tensor.dtype()) || tensor.dtype() == DataType::kString)
    fail(ErrorCode::kInvalidModel,
         fmt::format("a constant of type {} is given where integers are expected",
                     to_string(tensor.dtype())));
  std::vector<int64_t> integers;
  for_each_element(tensor, [&]<class T>(T value) {
    if constexpr (std::is_integral_v<T>) integers.push_back(static_cast<int64_t>(value));
  });
  return integers;
}

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  for_each_element(tensor, [&]<class T>(T value) {
    if constexpr (std::is_arithmetic_v<T>) {
      numbers.push_back(static_cast<double>(value));
    } else {
      numbers.push_back(to_f32(value));
    }
  });
  return numbers;
}

Tensor tensor_of(DataType dtype, const Dims& dims, const std::vector<double>& values) {
  const auto fill = [&]<class T>(auto&& convert, T) {
    std::vector<T> converted;
    for (const double value : values) converted.push_back(convert(value));
    return Tensor::of<T>(dtype, dims, converted);
  };
  switch (dtype) {
    case DataType::kF64:
      return fill([](double value) { return value; }, double{});
    case DataType::kF16:
      return fill([](double value) { return to_f16(value); }, Float16{});
    case DataType::kBF16:
      return fill([](double value) { return to_bf16(static_cast<float>(value)); }, BFloat16{});
    case DataType::kI8:
      return fill([](double value) { return static_cast<int8_t>(value); }, int8_t{});
    case DataType::kU8:
      return fill([](double value) { return static_cast<uint8_t>(value); }, uint8_t{});
    default:
      check(dtype == DataType::kF32, "a float type, i8 or u8");
      return fill([](double value) { return static_cast<float>(value); }, float{});
  }
}

}  // namespace anneal
