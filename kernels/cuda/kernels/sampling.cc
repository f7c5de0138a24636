// GridSample and RoiAlign: "cuda.grid_sample.window", "cuda.roi_align.window" (device/sampling.h).
#include <fmt/format.h>

#include <bit>
#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/window_kernel.h"

namespace anneal::cuda {
namespace {

// No more sums than registers hold with ease.
constexpr int64_t kSampledChannels = 4;

// The kernel of a function "NAME<Numbers, lanes, accumulator>(s, x0, ..., aligned, result)".
// numbers: the struct Numbers, from "{" on.
KernelResult make_sampling(const Request& request, Extents& extents, ShapeText shape,
                           std::string_view name, size_t inputs, const std::string& numbers) {
  const Operand& x = request.inputs[0];
  const std::vector<int64_t> ones(3, 1), zeros(3, 0);
  const ThreadShare share{.channels = readable_channels(x, kSampledChannels)};
  add_window(shape, extents, request, {ones, zeros, zeros, ones}, false);
  add_thread_outputs(shape, extents, request, share, "c");
  std::string operands;
  for (size_t i = 0; i < inputs; ++i) operands += fmt::format("x{}, ", i);
  const DataType sum = accumulator(x.type.dtype);
  return make_window_kernel(
      request, extents, shape,
      {.family = name,
       .header = "sampling.h",
       .share = share,
       .accumulator = sum,
       .inputs = inputs,
       .definitions = fmt::format("struct Numbers {};\n", numbers),
       .call = fmt::format("{}<Numbers, {}, {}>(s, {}aligned != 0, result)", name, share.channels,
                           type_text(register_type(sum)), operands),
       .vectors = {{0, 1, share.channels}},
       .if_empty = "an empty image has nothing to sample"});
}

KernelResult make_grid_sample(const GridSample& op, const Request& request) {
  const int rank = request.inputs[0].type.shape.rank();
  if (rank > 5) return refuse("more than three spatial axes");
  Extents extents(request);
  ShapeText shape(index_type(request));
  shape.number("g_n", extents.input_stride(1, 0));
  for (int i = 0; i < 3; ++i) {
    const int axis = axis_of(i, rank);
    shape.number(fmt::format("g_{}", "zyx"[i]), axis < 0 ? "0" : extents.input_stride(1, axis - 1));
  }
  shape.number("g_axis", extents.input_stride(1, rank - 1));
  const int taps = op.mode == ResizeMode::kNearest ? 1 : op.mode == ResizeMode::kLinear ? 2 : 4;
  return make_sampling(request, extents, std::move(shape), "grid_sample", 2,
                       fmt::format("{{\n  enum : int {{ kAxes = {}, kTaps = {}, kPadding = {} }};\n"
                                   "  enum : bool {{ kCorners = {} }};\n}}",
                                   rank - 2, taps, static_cast<int>(op.padding), op.align_corners));
}

KernelResult make_roi_align(const RoiAlign& op, const Request& request) {
  Extents extents(request);
  ShapeText shape(index_type(request));
  shape.number("images", extents.input_dim(0, 0));
  shape.number("regions_n", extents.input_stride(1, 0));
  shape.number("regions_axis", extents.input_stride(1, 1));
  shape.number("images_n", extents.input_stride(2, 0));
  return make_sampling(
      request, extents, std::move(shape), "roi_align", 3,
      fmt::format("{{\n  enum : bool {{ kMaximum = {}, kHalfPixel = {} }};\n"
                  "  enum : int {{ kRatio = {} }};\n"
                  "  __device__ static f32 scale() {{ return {}; }}\n}}",
                  op.kind == PoolKind::kMax, op.half_pixel, op.sampling_ratio,
                  literal(RegisterType::kF32, std::bit_cast<uint32_t>(op.spatial_scale))));
}

constexpr KernelEntry kSamplingEntries[] = {
    entry<GridSample, make_grid_sample>("cuda.grid_sample.window", Layout::kChannelsLast),
    entry<RoiAlign, make_roi_align>("cuda.roi_align.window", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> sampling_entries() { return kSamplingEntries; }

}  // namespace anneal::cuda
