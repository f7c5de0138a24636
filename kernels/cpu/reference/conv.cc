// Conv and ConvTranspose, directly from their definitions. Both work on tiles of an output row (the
// last spatial axis) and add to a tile the products of one kernel element and one input row at a
// time. Sums are in f64 for floats; 8-bit products are exact in i32.
#include <algorithm>
#include <array>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kRowTile = 256;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// A tile of an output row: its coordinates without the last, and where in the row it lies.
struct RowTile {
  Dims at;  // [n, channel, outer spatial...]
  int64_t begin = 0, end = 0;
};

// f(tile) for every tile of y; the caller fills y[tile.at, tile.begin .. tile.end).
template <class F>
void for_tiles(const TensorView& y, ThreadTeam& team, F f) {
  const int last = y.dims.rank() - 1;
  const Dims outer = part(y.dims, 0, last);
  const int64_t tiles = ceil_div(y.dims[last], kRowTile);
  team.for_ranges(count(outer) * tiles, 1, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      const int64_t begin = i % tiles * kRowTile;
      f(RowTile{coordinates(outer, i / tiles), begin, std::min(begin + kRowTile, y.dims[last])});
    }
  });
}

// f(position in the kernel) for each of its elements.
template <class F>
void for_taps(const Dims& kernel, F f) {
  Dims tap = Dims::filled(kernel.rank(), 0);
  for (int64_t i = 0, taps = count(kernel); i < taps; ++i, advance(tap, kernel)) f(tap);
}

template <class E, class Sum>
void store_tile(const TensorView& y, const RowTile& tile, const std::array<Sum, kRowTile>& sums) {
  using Acc = typename E::Acc;
  const int last = y.dims.rank() - 1;
  const ResultElements<Acc> out(with_offset(y, dot(tile.at, part(y.strides, 0, last))));
  for (int64_t o = tile.begin; o < tile.end; ++o)
    out.put(o * y.strides[last], static_cast<Acc>(sums[o - tile.begin]));
}

// Output element o reads input element o * stride - pad + tap * dilation of each axis.
template <class X, class W, class Y>
void conv(const Conv& op, const ReferenceArgs& args) {
  using Sum = typename Y::Sum;
  const TensorView &x = args.inputs[0], &w = args.inputs[1], &y = args.results[0];
  const int last = x.dims.rank() - 3;  // spatial axis
  check(last >= 0, "a convolution has a spatial axis");
  const int64_t channels = w.dims[1], outputs_per_group = w.dims[0] / op.groups;
  const Dims kernel = part(w.dims, 2, w.dims.rank());
  const Dims kernel_strides = part(w.strides, 2, w.dims.rank());
  const Sum x_zero = args.has(2) ? widen<Sum>(X::load(args.inputs[2].data, 0)) : Sum{0};
  const int64_t x_step = op.strides[last] * x.strides[2 + last];

  for_tiles(y, args.team, [&](const RowTile& tile) {
    std::array<Sum, kRowTile> sums{};
    const int64_t k = tile.at[1], first_channel = k / outputs_per_group * channels;
    Sum w_zero{0};
    if (args.has(3)) {
      const TensorView& zero = args.inputs[3];
      const bool per_channel = zero.dims.rank() == 1 && zero.dims[0] > 1;
      w_zero = widen<Sum>(W::load(zero.data, per_channel ? k * zero.strides[0] : 0));
    }
    for_taps(kernel, [&](const Dims& tap) {
      int64_t x_offset = tile.at[0] * x.strides[0] + first_channel * x.strides[1];
      for (int axis = 0; axis < last; ++axis) {
        const int64_t position = tile.at[2 + axis] * op.strides[axis] - op.pads_begin[axis] +
                                 tap[axis] * op.dilations[axis];
        if (position < 0 || position >= x.dims[2 + axis]) return;
        x_offset += position * x.strides[2 + axis];
      }
      const int64_t shift = tap[last] * op.dilations[last] - op.pads_begin[last];
      const int64_t begin = std::max(tile.begin, ceil_div(-shift, op.strides[last]));
      const int64_t end =
          std::min(tile.end, floor_div(x.dims[2 + last] - 1 - shift, op.strides[last]) + 1);
      x_offset += shift * x.strides[2 + last];
      int64_t w_offset = k * w.strides[0] + dot(tap, kernel_strides);
      for (int64_t c = 0; c < channels; ++c) {
        const Sum weight = widen<Sum>(W::load(w.data, w_offset)) - w_zero;
        for (int64_t o = begin; o < end; ++o) {
          const Sum value = widen<Sum>(X::load(x.data, x_offset + o * x_step)) - x_zero;
          sums[o - tile.begin] += weight * value;
        }
        x_offset += x.strides[1];
        w_offset += w.strides[1];
      }
    });
    store_tile<Y>(y, tile, sums);
  });
}

void conv_of_types(const Conv& op, const ReferenceArgs& args) {
  const DataType x = args.inputs[0].dtype, w = args.inputs[1].dtype;
  using I8 = Element<DataType::kI8, int8_t, int8_t>;
  using U8 = Element<DataType::kU8, uint8_t, uint8_t>;
  using I32 = Element<DataType::kI32, int32_t, int32_t>;
  if (size_of(x) == 1) {
    if (x == DataType::kI8)
      return w == DataType::kI8 ? conv<I8, I8, I32>(op, args) : conv<I8, U8, I32>(op, args);
    return w == DataType::kI8 ? conv<U8, I8, I32>(op, args) : conv<U8, U8, I32>(op, args);
  }
  visit_float(x, [&]<class E>(E) { conv<E, E, E>(op, args); });
}

void conv(const Conv& op, const ReferenceArgs& args) {
  for_parts(args, 0, 1, [&](const ReferenceArgs& part) { conv_of_types(op, part); });
}

// Input element i adds to output element i * stride - pad + tap * dilation of each axis.
void conv_transpose(const ConvTranspose& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &w = args.inputs[1], &y = args.results[0];
  const int last = x.dims.rank() - 3;  // spatial axis
  check(last >= 0, "a convolution has a spatial axis");
  const int64_t channels = x.dims[1] / op.groups, outputs_per_group = w.dims[1];
  const Dims kernel = part(w.dims, 2, w.dims.rank());
  const Dims kernel_strides = part(w.strides, 2, w.dims.rank());

  visit_float(x.dtype, [&]<class E>(E) {
    for_tiles(y, args.team, [&](const RowTile& tile) {
      std::array<double, kRowTile> sums{};
      const int64_t k = tile.at[1] % outputs_per_group;
      const int64_t first_channel = tile.at[1] / outputs_per_group * channels;
      for_taps(kernel, [&](const Dims& tap) {
        int64_t x_offset = tile.at[0] * x.strides[0] + first_channel * x.strides[1];
        for (int axis = 0; axis < last; ++axis) {
          const int64_t scaled =
              tile.at[2 + axis] + op.pads_begin[axis] - tap[axis] * op.dilations[axis];
          if (scaled < 0 || scaled % op.strides[axis] != 0) return;
          const int64_t position = scaled / op.strides[axis];
          if (position >= x.dims[2 + axis]) return;
          x_offset += position * x.strides[2 + axis];
        }
        const int64_t stride = op.strides[last];
        const int64_t shift = tap[last] * op.dilations[last] - op.pads_begin[last];
        const int64_t begin = std::max<int64_t>(0, ceil_div(tile.begin - shift, stride));
        const int64_t end = std::min(x.dims[2 + last], ceil_div(tile.end - shift, stride));
        int64_t w_offset =
            first_channel * w.strides[0] + k * w.strides[1] + dot(tap, kernel_strides);
        for (int64_t c = 0; c < channels; ++c) {
          const double weight = E::load(w.data, w_offset);
          for (int64_t i = begin; i < end; ++i)
            sums[i * stride + shift - tile.begin] +=
                weight * E::load(x.data, x_offset + i * x.strides[2 + last]);
          x_offset += x.strides[1];
          w_offset += w.strides[0];
        }
      });
      store_tile<E>(y, tile, sums);
    });
  });
}

constexpr KernelEntry kConvEntries[] = {
    reference<Conv, conv>("cpu.conv.reference"),
    reference<ConvTranspose, conv_transpose>("cpu.conv_transpose.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_conv_entries() { return kConvEntries; }

}  // namespace anneal::cpu
