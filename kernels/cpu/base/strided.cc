#include "anneal/kernels/cpu/base/strided.h"

#include <cstring>
#include <string_view>

#include "anneal/kernels/cpu/base/element.h"

namespace anneal::cpu {
namespace {

constexpr std::string_view kWidened = "only 16-bit floats and i8 are widened, and to f32";

template <class From, class To, class Convert>
void copy_range(const Walk<2>& walk, const TensorView& from, const TensorView& to, int64_t begin,
                int64_t end, Convert convert) {
  const From* source = from.as<const From>();
  To* target = to.as<To>();
  const int64_t source_step = walk.step(0), target_step = walk.step(1);
  walk.for_runs(begin, end, [&](const auto& offsets, int64_t length) {
    const From* in = source + offsets[0];
    To* out = target + offsets[1];
    for (int64_t i = 0; i < length; ++i) out[i * target_step] = convert(in[i * source_step]);
  });
}

template <class T>
void move_range(const Walk<2>& walk, const TensorView& from, const TensorView& to, int64_t begin,
                int64_t end) {
  copy_range<T, T>(walk, from, to, begin, end, [](T value) { return value; });
}

void copy_range(const Walk<2>& walk, const TensorView& from, const TensorView& to, int64_t begin,
                int64_t end) {
  if (from.dtype != to.dtype) {
    check(to.dtype == DataType::kF32, kWidened);
    if (from.dtype == DataType::kF16) {
      copy_range<Float16, float>(walk, from, to, begin, end, [](Float16 v) { return to_f32(v); });
    } else if (from.dtype == DataType::kI8) {
      copy_range<int8_t, float>(walk, from, to, begin, end,
                                [](int8_t v) { return static_cast<float>(v); });
    } else {
      check(from.dtype == DataType::kBF16, kWidened);
      copy_range<BFloat16, float>(walk, from, to, begin, end, [](BFloat16 v) { return to_f32(v); });
    }
    return;
  }
  switch (size_of(from.dtype)) {
    case 1:
      return move_range<uint8_t>(walk, from, to, begin, end);
    case 2:
      return move_range<uint16_t>(walk, from, to, begin, end);
    case 4:
      return move_range<uint32_t>(walk, from, to, begin, end);
    default:
      return move_range<uint64_t>(walk, from, to, begin, end);
  }
}

}  // namespace

TensorView at(const TensorView& view, int axis, int64_t position) {
  TensorView result = with_offset(view, position * view.strides[axis]);
  result.dims = result.strides = Dims{};
  for (int i = 0; i < view.dims.rank(); ++i) {
    if (i == axis) continue;
    result.dims.push_back(view.dims[i]);
    result.strides.push_back(view.strides[i]);
  }
  return result;
}

TensorView broadcast(const TensorView& view, const Dims& dims) {
  TensorView result = view;
  result.dims = dims;
  result.strides = Dims::filled(dims.rank(), 0);
  const int missing = dims.rank() - view.dims.rank();
  check(missing >= 0, "a view broadcasts to more axes, not to fewer");
  for (int i = 0; i < view.dims.rank(); ++i) {
    if (view.dims[i] == dims[missing + i]) {
      result.strides[missing + i] = view.strides[i];
    } else {
      check(view.dims[i] == 1, "a view broadcasts along axes of size 1 only");
    }
  }
  return result;
}

void copy_element(const TensorView& from, int64_t from_offset, const TensorView& to,
                  int64_t to_offset) {
  if (from.dtype == to.dtype) {
    const auto size = static_cast<int64_t>(size_of(from.dtype));
    std::memcpy(to.data + to_offset * size, from.data + from_offset * size, size);
  } else if (from.dtype == DataType::kF16) {
    to.as<float>()[to_offset] = to_f32(from.as<const Float16>()[from_offset]);
  } else {
    check(from.dtype == DataType::kBF16 && to.dtype == DataType::kF32, kWidened);
    to.as<float>()[to_offset] = to_f32(from.as<const BFloat16>()[from_offset]);
  }
}

void copy_elements(const TensorView& from, const TensorView& to) {
  check(from.dims == to.dims, "a copy keeps the dims");
  const Walk<2> walk(to.dims, {from.strides, to.strides});
  copy_range(walk, from, to, 0, walk.count());
}

void copy_elements(const TensorView& from, const TensorView& to, ThreadTeam& team) {
  check(from.dims == to.dims, "a copy keeps the dims");
  const Walk<2> walk(to.dims, {from.strides, to.strides});
  team.for_ranges(walk.count(), kGrain,
                  [&](int64_t begin, int64_t end) { copy_range(walk, from, to, begin, end); });
}

}  // namespace anneal::cpu
