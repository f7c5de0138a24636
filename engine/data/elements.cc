#include "anneal/engine/data/elements.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"

namespace anneal {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <class T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  // The largest i64 and u64 are not doubles; the comparison is with the power of two above them.
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

template <class View, class Body>
void visit_elements(const View& view, const Body& body) {
  const int rank = view.dims.rank();
  const auto element = static_cast<int64_t>(size_of(view.dtype));
  Dims index = Dims::filled(rank, 0);
  int64_t offset = 0;
  for (int64_t left = count(view.dims); left > 0; --left) {
    body(view.data + offset * element);
    for (int axis = rank - 1; axis >= 0; --axis) {
      offset += view.strides[axis];
      if (++index[axis] < view.dims[axis]) break;
      offset -= view.strides[axis] * view.dims[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

double read_element(DataType dtype, const std::byte* at) {
  switch (dtype) {
    case DataType::kF32:
      return load<float>(at);
    case DataType::kF64:
      return load<double>(at);
    case DataType::kF16:
      return to_f32(load<Float16>(at));
    case DataType::kBF16:
      return to_f32(load<BFloat16>(at));
    case DataType::kI8:
      return load<int8_t>(at);
    case DataType::kI16:
      return load<int16_t>(at);
    case DataType::kI32:
      return load<int32_t>(at);
    case DataType::kI64:
      return static_cast<double>(load<int64_t>(at));
    case DataType::kU8:
    case DataType::kBool:
      return load<uint8_t>(at);
    case DataType::kU16:
      return load<uint16_t>(at);
    case DataType::kU32:
      return load<uint32_t>(at);
    case DataType::kU64:
      return static_cast<double>(load<uint64_t>(at));
    case DataType::kString:
      break;
  }
  check(false, "elements of a numeric type");
  return 0;
}

void write_element(DataType dtype, std::byte* at, double value) {
  switch (dtype) {
    case DataType::kF32:
      return store(at, static_cast<float>(value));
    case DataType::kF64:
      return store(at, value);
    case DataType::kF16:
      return store(at, to_f16(value));
    case DataType::kBF16:
      return store(at, to_bf16(static_cast<float>(value)));
    case DataType::kI8:
      return store(at, saturate<int8_t>(value));
    case DataType::kI16:
      return store(at, saturate<int16_t>(value));
    case DataType::kI32:
      return store(at, saturate<int32_t>(value));
    case DataType::kI64:
      return store(at, saturate<int64_t>(value));
    case DataType::kU8:
      return store(at, saturate<uint8_t>(value));
    case DataType::kU16:
      return store(at, saturate<uint16_t>(value));
    case DataType::kU32:
      return store(at, saturate<uint32_t>(value));
    case DataType::kU64:
      return store(at, saturate<uint64_t>(value));
    case DataType::kBool:
      return store(at, static_cast<uint8_t>(value != 0));
    case DataType::kString:
      break;
  }
  check(false, "elements of a numeric type");
}

void for_each_element(const TensorView& view, FunctionRef<void(std::byte* element)> body) {
  visit_elements(view, body);
}

void for_each_element(const ConstTensorView& view,
                      FunctionRef<void(const std::byte* element)> body) {
  visit_elements(view, body);
}

Tensor dense_copy(const ConstTensorView& view) {
  auto copy = allocate_tensor(view.dtype, view.dims);
  if (!copy.data.empty()) strided_copy(copy.view(), view);
  return copy.tensor;
}

}  // namespace anneal
