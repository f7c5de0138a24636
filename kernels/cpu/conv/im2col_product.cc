#include "anneal/kernels/cpu/conv/im2col_product.h"

#include <algorithm>

#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {
namespace {

// Whether the pixels of an image of y are all one step apart.
bool rows_are_even(const TensorView& y, int64_t& step) {
  const int last = y.dims.rank() - 1;
  if (y.strides[1] != 1) return false;
  step = y.strides[last];
  int64_t next = step;
  for (int axis = last; axis >= 2; --axis) {
    if (y.dims[axis] != 1 && y.strides[axis] != next) return false;
    next *= y.dims[axis];
  }
  return true;
}

int32_t* columns_of(const ConvPlan& p, const ConvOperands& operands, int64_t group) {
  return reinterpret_cast<int32_t*>(operands.columns) +
         group * 2 * p.weights.layout.padded_columns();
}

}  // namespace

void ConvWeights::pack(const std::byte* w, const std::byte* zero, int64_t panel, std::byte* to,
                       PackTo where) const {
  const int64_t group = panel / layout.panels();
  PackSource from = source;
  from.data = w + (offset + group * group_stride) * static_cast<int64_t>(size_of(source.dtype));
  from.zero = zero == nullptr ? nullptr : zero + group * group_outputs * source.zero_stride;
  pack_panel(layout, from, panel % layout.panels(),
             to + group * static_cast<int64_t>(layout.bytes()), where);
}

// Whether input pixels in memory are the rows of a product.
bool ConvGemm::reads_directly(const ConvPlan& p) const {
  const Spatial& s = p.x.strides;
  const bool even = (p.x.size[1] == 1 || s[1] == s[2] * p.x.size[2]) &&
                    (p.x.size[0] == 1 || s[0] == s[2] * p.x.size[2] * p.x.size[1]);
  const bool lanes =
      kernels_.reads(p.x.element) && p.weights.group_channels % kernels_.elements_per_lane == 0;
  const int64_t stride = s[2] * static_cast<int64_t>(size_of(p.x.element));
  // Rows a multiple of 4 KiB apart would push each other out of the first-level cache.
  return p.window.is_pointwise() && p.window.out == p.x.size && even && lanes &&
         (stride % 4096 != 0 || p.blocks.rows < 8);
}

void ConvGemm::finish(ConvPlan& p, const Epilogues& epilogues, const TensorView& y,
                      int threads) const {
  p.blocks = GemmBlocks(kernels_, p.window.outputs(), p.weights.group_outputs,
                        p.weights.layout.lanes(), p.x.images * p.weights.groups, threads);
  p.a_is_direct = reads_directly(p);
  p.c_is_direct = kernels_.sums_are_f32() && epilogues.is_copy() && rows_are_even(y, p.c_row);
  if (kernels_.kind == GemmKind::kU8S8)
    p.columns_bytes = cache_aligned(static_cast<size_t>(p.weights.layout.padded_columns()) * 8 *
                                    static_cast<size_t>(p.weights.groups));
  p.a_pitch = static_cast<int64_t>(cache_aligned(static_cast<size_t>(p.blocks.lanes * 4)) + 64);
  const auto rows = static_cast<size_t>(p.blocks.rows);
  p.c_at = p.a_is_direct ? 0 : rows * static_cast<size_t>(p.a_pitch);
  const size_t c_bytes = cache_aligned(rows * static_cast<size_t>(p.blocks.columns) * 4);
  p.sums_at = p.c_at + (p.c_is_direct ? 0 : c_bytes);
  p.tape_at = p.sums_at + cache_aligned(rows * 4);
  p.part_bytes = cache_aligned(p.tape_at + epilogues.scratch_bytes());
}

bool ConvGemm::compensate(const ConvPlan& p, const ConvOperands& operands) const {
  Compensation zero;
  zero.a_zero = load_zero_point(operands.x_zero) + moved_by(operands.x_dtype);
  zero.b_dtype = p.weights.source.dtype;
  zero.b_zero_stride = p.weights.source.zero_stride;
  const std::byte* const first = operands.w_zero.data;
  bool any = false;
  for (int64_t group = 0; group < p.weights.groups; ++group) {
    zero.b_zero =
        first == nullptr ? nullptr : first + group * p.weights.group_outputs * zero.b_zero_stride;
    int32_t* const columns = columns_of(p, operands, group);
    const bool found = zero.columns(
        p.weights.layout, operands.packed + group * static_cast<int64_t>(p.weights.layout.bytes()),
        columns, columns + p.weights.layout.padded_columns());
    any = any || found;
  }
  return any;
}

void ConvGemm::run(const ConvPlan& p, const Epilogues& epilogues, const ConvOperands& operands,
                   const LaunchArgs& args) const {
  const bool has_w_zero = kernels_.kind == GemmKind::kU8S8 && compensate(p, operands);
  const auto run = [&](int64_t begin, int64_t end) {
    std::byte* const part = part_of(args.team, operands.parts, p.part_bytes);
    for (int64_t item = begin; item < end; ++item)
      run_block(p, epilogues, operands, args, has_w_zero, item, part);
  };
  args.team.for_ranges(p.x.images * p.weights.groups * p.blocks.count(), 1, run);
}

void ConvGemm::run_block(const ConvPlan& p, const Epilogues& epilogues,
                         const ConvOperands& operands, const LaunchArgs& args, bool has_w_zero,
                         int64_t item, std::byte* memory) const {
  const ConvWeights& weights = p.weights;
  const PackLayout& layout = weights.layout;
  const int64_t within = item % p.blocks.count();
  const int64_t group = item / p.blocks.count() % weights.groups;
  const int64_t image = item / p.blocks.count() / weights.groups;
  const int64_t first_row = within / p.blocks.column_blocks * p.blocks.rows;
  const int64_t first_column = within % p.blocks.column_blocks * p.blocks.columns;
  const int64_t rows = std::min(p.blocks.rows, p.window.outputs() - first_row);
  const int64_t columns = std::min(p.blocks.columns, weights.group_outputs - first_column);
  if (rows <= 0) return;
  const auto size = static_cast<int64_t>(size_of(p.x.element));
  ConvRows source{p.window, p.x, kernels_};
  source.data = operands.x + (image * p.x.image_stride + group * weights.group_channels) * size;
  source.channels = weights.group_channels;
  source.size = size;
  source.zero = load_zero_point(operands.x_zero);
  if (kernels_.kind == GemmKind::kU8S8) source.padding = source.zero + moved_by(p.x.element);

  GemmBlock block;
  block.rows = rows, block.columns = columns;
  const int64_t output = group * weights.group_outputs + first_column;
  if (p.c_is_direct) {
    const TensorView& y = args.outputs[0];
    block.c = y.data + (image * y.strides[0] + first_row * p.c_row + output) * 4;
    block.c_stride = p.c_row;
  } else {
    block.c = memory + p.c_at;
    block.c_stride = p.blocks.columns;
    block.c_is_padded = true;
  }
  BlockSums sums{.rows = reinterpret_cast<int32_t*>(memory + p.sums_at), .has_b_zero = has_w_zero};
  if (kernels_.kind == GemmKind::kU8S8)
    sums.columns = columns_of(p, operands, group) + first_column;
  const std::byte* const panel = operands.packed + group * static_cast<int64_t>(layout.bytes()) +
                                 first_column / layout.tile_columns * layout.panel_bytes();
  const auto left = [&](int64_t k, int64_t elements) -> std::pair<const std::byte*, int64_t> {
    const int64_t pixel = p.x.strides[2] * size;
    if (p.a_is_direct) return {source.data + first_row * pixel + k * size, pixel};
    source.fetch(first_row, rows, k, elements, memory, p.a_pitch);
    return {memory, p.a_pitch};
  };
  run_lanes(kernels_, layout, p.blocks.lanes, panel, sums, block, left);
  if (!p.c_is_direct)
    epilogues.run(p.spaces, args, {block.c, block.c_stride},
                  {image * p.window.outputs() + first_row, rows, output, columns},
                  memory + p.tape_at);
}

}  // namespace anneal::cpu
