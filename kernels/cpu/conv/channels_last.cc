#include "anneal/kernels/cpu/conv/channels_last.h"

#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {

ChannelsLast::ChannelsLast(const TensorView& view, bool keeps_bf16, int64_t repeats)
    : images(view.dims[0]), channels(view.dims[1] * repeats), element(view.dtype) {
  const int axes = view.dims.rank() - 2;
  size = spatial_of(view.dims, 2, axes, 1);
  strides = spatial_of(view.strides, 2, axes, 0);
  image_stride = view.strides[0];
  const bool widened =
      view.dtype == DataType::kF16 || (view.dtype == DataType::kBF16 && !keeps_bf16);
  if (widened) element = DataType::kF32;
  staged = widened || repeats > 1 || (view.strides[1] != 1 && channels != 1);
  if (!staged) return;
  strides[2] = channels;
  strides[1] = strides[2] * size[2];
  strides[0] = strides[1] * size[1];
  image_stride = strides[0] * size[0];
  Dims to_strides = {image_stride, repeats};
  for (int axis = 0; axis < axes; ++axis) to_strides.push_back(strides[3 - axes + axis]);
  Dims dims = view.dims, from_strides = view.strides;
  dims.push_back(repeats), from_strides.push_back(0), to_strides.push_back(1);
  copy = CopyPlan(size_of(element), dims, from_strides, to_strides);
}

size_t ChannelsLast::staged_bytes() const {
  if (!staged) return 0;
  return cache_aligned(static_cast<size_t>(images * image_stride) * size_of(element));
}

void ChannelsLast::stage(const TensorView& view, std::byte* to, LoadBlock load,
                         ThreadTeam& team) const {
  const int axes = view.dims.rank() - 2;
  const Spatial from = spatial_of(view.strides, 2, axes, 0);
  const auto in_size = static_cast<int64_t>(size_of(view.dtype));
  const auto out_size = static_cast<int64_t>(size_of(element));
  if (view.dtype == element) return copy.run(view.data, to, team);
  const int64_t grain = 1 + 8192 / (strides[1] + 1);
  team.for_ranges(images * size[0] * size[1], grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t y = row % size[1];
      const int64_t z = row / size[1] % size[0];
      const int64_t image = row / size[1] / size[0];
      std::byte* const data =
          view.data + (image * view.strides[0] + z * from[0] + y * from[1]) * in_size;
      std::byte* const out =
          to + (image * image_stride + z * strides[0] + y * strides[1]) * out_size;
      load(view.dtype, TapePort{data, 0, from[2], view.strides[1]}, out, channels, size[2],
           channels);
    }
  });
}

}  // namespace anneal::cpu
