#include "anneal/engine/builder/self_check/value_error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "anneal/core/channels_last.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/float16.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/strided_copy.h"

namespace anneal {
namespace {

float as_half(DataType half, float value) {
  return half == DataType::kF16 ? to_f32(to_f16(value)) : to_f32(to_bf16(value));
}

bool are_all_of(DataType half, std::span<const float> elements) {
  return std::ranges::all_of(elements, [&](float value) {
    return !std::isfinite(value) || as_half(half, value) == value;
  });
}

// Calls the body with a value of the C++ type of the elements.
template <class Body>
void with_element_type(DataType dtype, Body&& body) {
  switch (dtype) {
    case DataType::kF32:
      return body(float{});
    case DataType::kF64:
      return body(double{});
    case DataType::kF16:
      return body(Float16{});
    case DataType::kBF16:
      return body(BFloat16{});
    case DataType::kI8:
      return body(int8_t{});
    case DataType::kI16:
      return body(int16_t{});
    case DataType::kI32:
      return body(int32_t{});
    case DataType::kI64:
      return body(int64_t{});
    case DataType::kU16:
      return body(uint16_t{});
    case DataType::kU32:
      return body(uint32_t{});
    case DataType::kU64:
      return body(uint64_t{});
    case DataType::kU8:
    case DataType::kBool:
      return body(uint8_t{});
    case DataType::kString:
      break;
  }
  check(false, "elements are numbers");
}

float as_float(Float16 value) { return to_f32(value); }
float as_float(BFloat16 value) { return to_f32(value); }
float as_float(auto value) { return static_cast<float>(value); }

bool is_dense(const TensorView& view) { return is_row_major(view) || is_channels_last(view); }
// REQUIRES: dense f32
std::vector<float> as_it_lies(const TensorView& view) {
  const auto* from = view.as<float>();
  return {from, from + count(view.dims)};
}

void assign(Float16& to, float value) { to = to_f16(value); }
void assign(BFloat16& to, float value) { to = to_bf16(value); }
void assign(auto& to, float value) { to = static_cast<std::decay_t<decltype(to)>>(value); }

}  // namespace

ValueError value_error(std::span<const float> got, std::span<const float> expected, float noise) {
  // Sums of a block in lanes, which a compiler turns into vectors.
  constexpr size_t kLanes = 16, kBlock = 1024;
  ValueError error;
  double power = 0, lost_power = 0;
  float largest = 0, worst = 0;
  int64_t differing = 0;
  for (size_t at = 0; at < expected.size(); at += kBlock) {
    const size_t end = std::min(at + kBlock, expected.size());
    std::array<float, kLanes> squares{}, lost{}, most{}, off{};
    std::array<int32_t, kLanes> unequal{}, infinite{};
    const auto add = [&](size_t i, size_t lane) {
      const float want = expected[i], difference = got[i] - want;
      // For a number that is not finite this differs from 0.
      const bool counts = want - want == 0 && got[i] - got[i] == 0;
      const float counted = counts ? want : 0, distance = counts ? std::abs(difference) : 0;
      const float away = distance > noise ? distance : 0;
      infinite[lane] += want - want == 0 && !counts;
      squares[lane] += counted * counted;
      lost[lane] += away * away;
      most[lane] = std::max(most[lane], std::abs(counted));
      off[lane] = std::max(off[lane], away);
      unequal[lane] += away != 0;
    };
    size_t i = at;
    for (; i + kLanes <= end; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    for (; i < end; ++i) add(i, 0);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      power += squares[lane];
      lost_power += lost[lane];
      largest = std::max(largest, most[lane]);
      worst = std::max(worst, off[lane]);
      differing += unequal[lane];
      error.lost += infinite[lane];
    }
  }
  error.largest = largest;
  error.away = worst;
  if (!expected.empty())
    error.differing = static_cast<double>(differing) / static_cast<double>(expected.size());
  // Squares of such numbers overflow or underflow f32.
  const bool is_wide = !std::isfinite(power) || !std::isfinite(lost_power) || largest < 1e-15f;
  if (power > 0 && !is_wide) error.relative = std::sqrt(lost_power / power);
  if (worst > 0) error.worst = largest > 0 ? double{worst} / largest : 1;
  if (is_wide) error.relative = error.worst;
  return error;
}

double share_apart(std::span<const float> got, std::span<const float> expected, double steps) {
  if (expected.empty()) return 0;
  size_t apart = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    apart += std::abs(double{got[i]} - double{expected[i]}) > steps;
  return static_cast<double>(apart) / static_cast<double>(expected.size());
}

std::vector<float> floats_of(const ConstTensorView& view) {
  const auto elements = static_cast<size_t>(count(view.dims));
  std::vector<float> values(elements);
  if (elements == 0) return values;
  if (view.dtype == DataType::kF32) {
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    if (is_row_major(view))
      std::memcpy(data, view.data, elements * sizeof(float));
    else
      strided_copy(row_major_view(view.dtype, view.dims, data), view);
    return values;
  }
  const NewTensor dense = allocate_tensor(view.dtype, view.dims);
  strided_copy(row_major_view(view.dtype, view.dims, dense.data.data()), view);
  with_element_type(view.dtype, [&]<class T>(T) {
    const auto* from = reinterpret_cast<const T*>(dense.data.data());
    for (size_t i = 0; i < elements; ++i) values[i] = as_float(from[i]);
  });
  return values;
}

void write_floats(const TensorView& to, std::span<const float> elements) {
  if (elements.empty()) return;
  const NewTensor dense = allocate_tensor(to.dtype, to.dims);
  with_element_type(to.dtype, [&]<class T>(T) {
    auto* at = reinterpret_cast<T*>(dense.data.data());
    for (size_t i = 0; i < elements.size(); ++i) assign(at[i], elements[i]);
  });
  strided_copy(to, dense.view());
}

KeptValue::KeptValue(const TensorView& view) : dims_(view.dims), strides_(view.strides) {
  const bool is_as_it_lies = view.dtype == DataType::kF32 && is_dense(view);
  if (!is_as_it_lies) strides_ = row_major_strides(dims_);
  elements_ = is_as_it_lies ? as_it_lies(view) : floats_of(view);
}

TensorView KeptValue::view() const {
  // Only read.
  auto* const data = reinterpret_cast<std::byte*>(const_cast<float*>(elements_.data()));
  return {DataType::kF32, dims_, strides_, data};
}

std::vector<float> KeptValue::row_major() const { return floats_of(view()); }

void KeptValue::write_to(const TensorView& to) const {
  if (to.dtype == DataType::kF32 && to.strides == strides_)
    std::ranges::copy(elements_, to.as<float>());
  else
    write_floats(to, row_major());
}

void KeptValue::round_to(DataType half) { anneal::round_to(half, elements_); }

ValueError KeptValue::error_of(const TensorView& got, float noise) const {
  if (got.dtype == DataType::kF32 && got.strides == strides_)
    return value_error({got.as<float>(), elements_.size()}, elements_, noise);
  return value_error(floats_of(got), row_major(), noise);
}

double KeptValue::share_apart(const TensorView& got, double steps) const {
  return anneal::share_apart(floats_of(got), row_major(), steps);
}

DataType narrowest(std::span<const float> elements) {
  for (const DataType half : {DataType::kF16, DataType::kBF16})
    if (are_all_of(half, elements)) return half;
  return DataType::kF32;
}

void round_to(DataType half, std::span<float> elements) {
  if (!is_half(half)) return;
  for (float& value : elements) value = as_half(half, value);
}

}  // namespace anneal
