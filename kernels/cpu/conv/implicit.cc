// Conv as a matrix product whose left-hand rows are read in place: "cpu.conv.implicit_gemm".
//
// The windows of neighbouring outputs are evenly spaced in memory, so a register tile walks along
// several of them tap by tap and nothing is gathered. If padding, elements of another type or
// unsuitable distances prevent that, the input of a piece of work is copied first, each element
// once, with padding around it. Where many taps lie in padding, each tap is multiplied for the
// outputs alone whose tap is inside the input (`ImplicitPlan::clips`).
//
// The sums of a few columns of a hundred pixels stay in the first-level cache until the epilogue
// has read them. Where weights of 8 bits have a zero point, sums begin with what it contributes:
// the sum of the window times the zero point.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/implicit_plan.h"
#include "anneal/kernels/cpu/conv/start_offsets.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

struct PreparedImplicit final : PreparedKernel {
  Epilogues::Spaces spaces;
  ImplicitPlan plan;
  // In a thread's part of the workspace, behind the copied input.
  size_t parts_at = 0, part_bytes = 0, starts_at = 0, sums_at = 0, tape_at = 0;
};

class ImplicitGemmConv final : public Kernel {
 public:
  ImplicitGemmConv(const Conv& op, const Request& request, const StartOffsets& offsets,
                   Epilogues epilogues)
      : op_(op),
        x_dtype_(request.inputs[0].type.dtype),
        weights_{.kernels = gemm_of(x_dtype_, isa_of(request.device))},
        load_(load_block(isa_of(request.device))),
        epilogues_(std::move(epilogues)) {
    const auto constant = [&](int i) {
      const bool has = request.op_input_count > i && request.inputs[i].present;
      return has ? kernel_view(*request.inputs[i].constant) : TensorView{};
    };
    x_zero_ = load_zero_point(constant(2));
    pack(request, constant(1), constant(3));
    add(offsets.of_channels(outputs_));
  }

  bool has_zeros_of_channels() const { return has_zeros_of_channels_; }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedImplicit>();
    PreparedImplicit& p = *made;
    p.spaces = epilogues_.pixel_spaces(inputs, outputs);
    if (count(outputs[0].dims) == 0) return made;
    const ChannelsLast x(inputs[0], weights_.kernels.kind == GemmKind::kBf16);
    p.plan = ImplicitPlan(weights_, x, Window(op_, kernel_, 0, outputs[0].dims), threads);
    p.starts_at = cache_aligned(static_cast<size_t>(p.plan.most_copied_bytes()));
    const int64_t width = p.plan.most_width();
    const int64_t windows = w_zero_ == 0 ? 0 : p.plan.most_rows() * width;
    p.sums_at = p.starts_at + cache_aligned(static_cast<size_t>(windows) * 4);
    p.tape_at = p.sums_at + static_cast<size_t>(p.plan.block_rows * width * kBlockColumns) * 4;
    p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
    p.parts_at = x.staged_bytes();
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedImplicit&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    const std::byte* x = args.inputs[0].data;
    if (p.plan.x.staged) {
      p.plan.x.stage(args.inputs[0], args.workspace, load_, args.team);
      x = args.workspace;
    }
    args.team.for_ranges(p.plan.pieces(), 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t item = begin; item < end; ++item) run_piece(p, args, x, item, part);
    });
  }

 private:
  void pack(const Request& request, const TensorView& w, const TensorView& w_zero) {
    const GemmKernels& kernels = weights_.kernels;
    const int64_t channels = w.dims[1];
    outputs_ = w.dims[0];
    weights_.channels = channels;
    PackSource source;
    source.dtype = w.dtype;
    source.data = w.data;
    source.column_stride = w.strides[0];
    for (int axis = 2; axis < w.dims.rank(); ++axis) {
      kernel_.push_back(w.dims[axis]);
      source.k_dims.push_back(w.dims[axis]);
      source.k_strides.push_back(w.strides[axis]);
    }
    source.k_dims.push_back(channels);
    source.k_strides.push_back(w.strides[1]);
    source.zero = w_zero.data;
    if (w_zero.dims.rank() > 0 && count(w_zero.dims) > 1) source.zero_stride = w_zero.strides[0];
    // A row of the window is one tap where few channels would make many short ones.
    const int64_t across = kernel_[kernel_.rank() - 1];
    weights_.joins_row = op_.dilations.back() == 1 && across > 1 &&
                         channels * across <= ImplicitWeights::kMostBlockLanes;
    // The value after an odd channel may be NaN, so each pixel of a row keeps its lanes.
    const bool keeps_lanes = kernels.kind == GemmKind::kBf16 && channels % 2 != 0;
    weights_.pieces = weights_.joins_row && keeps_lanes ? across : 1;
    const PackLayout& layout = weights_.layout =
        PackLayout(kernels, count(source.k_dims), outputs_,
                   weights_.joins_row && !keeps_lanes ? channels * across : channels);
    packed_ = packed_constant(request, layout.form(), layout.bytes(), [&](std::byte* to) {
      for_parts(request, layout.panels(),
                [&](int64_t panel) { pack_panel(layout, source, panel, to, PackTo::kMemory); });
    });
    if (kernels.kind != GemmKind::kU8S8) return;
    const Compensation zero{.a_zero = x_zero_ + moved_by(x_dtype_),
                            .b_dtype = w.dtype,
                            .b_zero = w_zero.data,
                            .b_zero_stride = source.zero_stride};
    initial_.resize(static_cast<size_t>(layout.padded_columns()));
    std::vector<int32_t> zeros(initial_.size());
    zero.columns(layout, packed_->bytes().data(), initial_.data(), zeros.data());
    zeros.resize(static_cast<size_t>(outputs_));
    w_zero_ = zeros[0];
    has_zeros_of_channels_ = std::ranges::count(zeros, w_zero_) != outputs_;
  }

  void add(const std::vector<int32_t>& offsets) {
    if (!offsets.empty()) initial_.resize(static_cast<size_t>(weights_.layout.padded_columns()));
    for (size_t i = 0; i < offsets.size(); ++i) initial_[i] = wrapping_sum(initial_[i], offsets[i]);
  }

  static constexpr int64_t kBlockColumns = ImplicitPlan::kBlockColumns;

  // What is multiplied for the outputs of a piece.
  struct Work {
    const PreparedImplicit& prepared;
    const ImplicitPlan& plan;
    const LaunchArgs& args;
    ConvPiece piece;
    const std::byte* x;  // the first input of the piece
    std::byte* memory;   // of the thread
    int32_t* starts() const { return reinterpret_cast<int32_t*>(memory + prepared.starts_at); }
    std::byte* sums() const { return memory + prepared.sums_at; }
    // Those of the planes that are multiplied.
    std::span<const ConvChunk> chunks() const {
      const size_t each = plan.chunks.size() / static_cast<size_t>(plan.z_axis.kernel);
      return std::span(plan.chunks)
          .subspan(static_cast<size_t>(piece.planes.begin) * each,
                   static_cast<size_t>(piece.planes.count()) * each);
    }
  };

  void run_piece(const PreparedImplicit& p, const LaunchArgs& args, const std::byte* x,
                 int64_t item, std::byte* memory) const {
    const ImplicitPlan& plan = p.plan;
    ConvPiece piece = plan.piece(item);
    piece.columns = std::min(piece.columns, outputs_ - piece.column);
    x += piece.image * plan.x.image_stride * static_cast<int64_t>(size_of(plan.x.element));
    if (plan.is_copied) {
      copy(plan, piece, x, memory);
      x = memory;
    } else if (piece.planes.count() > 0) {
      x += plan.first_plane(piece) * plan.source_plane +
           plan.rows_read(piece).begin * plan.source_row +
           plan.columns_read(piece).begin * plan.source_pixel;
    }
    const Work work{p, plan, args, piece, x, memory};
    if (w_zero_ != 0) start_windows(work);
    for (int64_t column = 0; column < piece.columns; column += kBlockColumns)
      for (int64_t row = 0; row < piece.rows; row += plan.block_rows) run_block(work, row, column);
  }

  // What the sums of each window of a piece begin with, for the zero point of the weights.
  void start_windows(const Work& work) const {
    const ImplicitPlan& plan = work.plan;
    const ConvPiece& piece = work.piece;
    const int64_t windows = piece.rows * piece.width;
    int32_t* const starts = work.starts();
    std::fill_n(starts, windows, 0);
    GemmBlock block{.a_stride = plan.x_axis.stride * plan.pixel};
    block.rows = piece.width;
    block.taps = plan.taps.data();
    block.tap_count = plan.taps_of_plane;
    for (int64_t plane = 0; plane < piece.planes.count(); ++plane)
      for (int64_t row = 0; row < piece.rows; ++row) {
        block.a = work.x + plane * plan.plane + row * plan.y_axis.stride * plan.row;
        weights_.kernels.row_sums(block, weights_.layout.tap, starts + row * piece.width);
      }
    // Sums wrap, as integer arithmetic does.
    const auto factor = static_cast<uint32_t>(-w_zero_);
    for (int64_t i = 0; i < windows; ++i)
      starts[i] = static_cast<int32_t>(static_cast<uint32_t>(starts[i]) * factor);
  }

  // Rows of a piece from `row` on, columns from `column` on.
  void run_block(const Work& work, int64_t row, int64_t column) const {
    const ImplicitPlan& plan = work.plan;
    const ConvPiece& piece = work.piece;
    const int64_t rows = std::min(plan.block_rows, piece.rows - row);
    GemmBlock block;
    block.rows = piece.width;
    block.columns = std::min(kBlockColumns, piece.columns - column);
    block.a_stride = plan.x_axis.stride * plan.pixel;
    block.panel_stride = weights_.layout.panel_bytes();
    block.c_stride = kBlockColumns;
    block.c_is_padded = true;
    column += piece.column;
    if (!initial_.empty())
      block.initial = reinterpret_cast<const std::byte*>(initial_.data() + column);
    block.b = packed_->bytes().data() + column / weights_.layout.tile_columns * block.panel_stride;
    const int64_t plane = piece.image * plan.z_axis.out + piece.plane;
    const int64_t first =
        (plane * plan.y_axis.out + piece.row + row) * plan.x_axis.out + piece.first;
    std::optional<RegisterEpilogue> finish;
    if (block.columns % kRegisterColumns == 0)
      finish = epilogues_.finish(weights_.kernels.finishes, work.prepared.spaces, work.args, first,
                                 column, block.columns);
    plan.clips ? multiply_inside(work, block, row, rows, finish)
               : multiply_windows(work, block, row, rows, finish);
    if (finish) return;
    epilogues_.run(work.prepared.spaces, work.args, {work.sums(), kBlockColumns},
                   {first, rows * piece.width, column, block.columns},
                   work.memory + work.prepared.tape_at);
  }

  // Where the weights of a chunk are. panel: those of the first tap.
  const std::byte* weights_of(const ImplicitPlan& plan, const ConvChunk& chunk,
                              const std::byte* panel) const {
    const int64_t tap = chunk.plane * plan.taps_of_plane + chunk.tap;
    return panel +
           (tap * plan.lanes_of_tap + chunk.lane) * weights_.layout.tile_columns * int64_t{4};
  }

  // The row of outputs that `finish` begins with is done.
  static void next_row(RegisterEpilogue& finish, int64_t width) {
    finish.y += width * finish.y_stride;
    if (finish.addend != nullptr) finish.addend += width * finish.addend_stride;
  }

  // `rows` rows of whole windows; the epilogue is run if `finish` has one.
  void multiply_windows(const Work& work, GemmBlock block, int64_t row, int64_t rows,
                        std::optional<RegisterEpilogue>& finish) const {
    const ImplicitPlan& plan = work.plan;
    const ConvPiece& piece = work.piece;
    const std::byte* const panel = block.b;
    const std::span<const ConvChunk> chunks = work.chunks();
    for (const ConvChunk& chunk : chunks) {
      block.taps = plan.taps.data() + chunk.tap;
      block.tap_count = chunk.taps;
      block.lanes = chunk.lanes;
      block.b = weights_of(plan, chunk, panel);
      for (int64_t i = 0; i < rows; ++i) {
        block.a = work.x + (chunk.plane - piece.planes.begin) * plan.plane +
                  (row + i) * plan.y_axis.stride * plan.row + chunk.lane * 4;
        block.c = work.sums() + i * piece.width * kBlockColumns * 4;
        if (w_zero_ != 0) block.row_starts = work.starts() + (row + i) * piece.width;
        const bool is_last = finish && &chunk == &chunks.back();
        block.finish = is_last ? &*finish : nullptr;
        weights_.kernels.block(block);
        if (is_last) next_row(*finish, piece.width);
      }
      block.accumulate = true;
    }
  }

  // The same, but each tap for the outputs alone whose tap is inside the input.
  void multiply_inside(const Work& work, GemmBlock block, int64_t row, int64_t rows,
                       std::optional<RegisterEpilogue>& finish) const {
    const ImplicitPlan& plan = work.plan;
    const ConvPiece& piece = work.piece;
    const WindowAxis &y = plan.y_axis, &x = plan.x_axis;
    const int64_t first_row = plan.rows_read(piece).begin;
    const int64_t first_column = plan.columns_read(piece).begin;
    const std::byte* const panel = block.b;
    const auto sums_of = [&](int64_t i, int64_t column) {
      return work.sums() + (i * piece.width + column - piece.first) * kBlockColumns * 4;
    };
    std::memset(work.sums(), 0, static_cast<size_t>(rows * piece.width * kBlockColumns) * 4);
    block.accumulate = true;
    for (const ConvChunk& chunk : work.chunks()) {
      const int64_t tap_row = chunk.tap / x.kernel, tap_column = chunk.tap % x.kernel;
      const IndexRange down = y.outputs_inside(tap_row, piece.row + row, rows);
      const IndexRange across = x.outputs_inside(tap_column, piece.first, piece.width);
      if (across.count() == 0) continue;
      block.rows = across.count();
      block.lanes = chunk.lanes;
      block.b = weights_of(plan, chunk, panel);
      const int64_t column =
          across.begin * x.stride - x.pad + tap_column * x.dilation - first_column;
      for (int64_t out = down.begin; out < down.end; ++out) {
        const int64_t from = out * y.stride - y.pad + tap_row * y.dilation - first_row;
        block.a = work.x + (chunk.plane - piece.planes.begin) * plan.plane + from * plan.row +
                  column * plan.pixel + chunk.lane * 4;
        block.c = sums_of(out - piece.row - row, across.begin);
        weights_.kernels.block(block);
      }
    }
    if (!finish) return;
    block.rows = piece.width;
    block.tap_count = 0;
    block.b = panel;
    block.finish = &*finish;
    for (int64_t i = 0; i < rows; ++i) {
      block.c = sums_of(i, piece.first);
      weights_.kernels.block(block);
      next_row(*finish, piece.width);
    }
  }

  // The input that a piece reads, as a left-hand side, padded. x: of the image.
  void copy(const ImplicitPlan& plan, const ConvPiece& piece, const std::byte* x,
            std::byte* to) const {
    const IndexRange rows = plan.rows_read(piece), columns = plan.columns_read(piece);
    const int64_t left = std::clamp<int64_t>(-columns.begin, 0, columns.count());
    const int64_t right = std::clamp(plan.x_axis.in - columns.begin, left, columns.count());
    const int padding = weights_.kernels.kind == GemmKind::kU8S8
                            ? x_zero_ + static_cast<int>(moved_by(x_dtype_))
                            : 0;
    for (int64_t i = 0; i < piece.planes.count() * rows.count(); ++i) {
      std::byte* const out = to + i / rows.count() * plan.plane + i % rows.count() * plan.row;
      const int64_t plane = plan.first_plane(piece) + i / rows.count() * plan.z_axis.dilation;
      const int64_t row = rows.begin + i % rows.count();
      const bool is_inside =
          plane >= 0 && plane < plan.z_axis.in && row >= 0 && row < plan.y_axis.in;
      const int64_t begin = is_inside ? left : columns.count();
      const int64_t end = is_inside ? right : columns.count();
      std::memset(out, padding, static_cast<size_t>(begin * plan.pixel));
      if (begin < end)
        copy_pixels(plan,
                    x + plane * plan.source_plane + row * plan.source_row +
                        (columns.begin + begin) * plan.source_pixel,
                    end - begin, out + begin * plan.pixel);
      std::memset(out + end * plan.pixel, padding,
                  static_cast<size_t>((columns.count() - end) * plan.pixel));
    }
  }

  void copy_pixels(const ImplicitPlan& plan, const std::byte* from, int64_t pixels,
                   std::byte* to) const {
    const DataType element = plan.x.element;
    if (plan.source_pixel == weights_.channels * static_cast<int64_t>(size_of(element)) &&
        plan.pixel == weights_.channels * static_cast<int64_t>(weights_.kernels.element_size()))
      return weights_.kernels.fetch(element, from, pixels * weights_.channels, x_zero_, to);
    const bool is_odd = weights_.kernels.kind == GemmKind::kBf16 && weights_.channels % 2 != 0;
    if (is_odd && weights_.channels <= 3) return copy_few(plan, from, pixels, to);
    for (int64_t i = 0; i < pixels; ++i, from += plan.source_pixel, to += plan.pixel) {
      weights_.kernels.fetch(element, from, weights_.channels, x_zero_, to);
      if (is_odd) std::memset(to + weights_.channels * 2, 0, 2);
    }
  }

  // One or three channels of bf16, and a zero. Each pixel may write beyond itself, where the next
  // one or the end of the row is.
  void copy_few(const ImplicitPlan& plan, const std::byte* from, int64_t pixels,
                std::byte* to) const {
    const auto bytes = static_cast<size_t>(weights_.channels * 2);
    const uint64_t mask = (uint64_t{1} << bytes * 8) - 1;
    const auto copy_one = [&](int64_t i, size_t size) {
      uint64_t pixel = 0;
      std::memcpy(&pixel, from + i * plan.source_pixel, size);
      pixel &= mask;
      std::memcpy(to + i * plan.pixel, &pixel, sizeof(pixel));
    };
    // Behind the last one nothing may be read.
    const int64_t whole = std::max<int64_t>(pixels - 4, 0);
    for (int64_t i = 0; i < whole; ++i) copy_one(i, sizeof(uint64_t));
    for (int64_t i = whole; i < pixels; ++i) copy_one(i, bytes);
  }

  Conv op_;
  DataType x_dtype_;
  ImplicitWeights weights_;
  LoadBlock load_;
  Epilogues epilogues_;
  int32_t x_zero_ = 0;
  int64_t outputs_ = 0;
  Dims kernel_;
  std::optional<Tensor> packed_;
  std::vector<int32_t> initial_;  // what the columns' sums start at; empty: 0
  int32_t w_zero_ = 0;            // of the weights as packed
  bool has_zeros_of_channels_ = false;
};

KernelResult make_implicit(const Conv& op, const Request& request) {
  const auto inputs = request.inputs;
  const DataType x = inputs[0].type.dtype, w = inputs[1].type.dtype;
  const bool int8 = is_8bit(x) && is_8bit(w);
  const bool f32 = x == w && (x == DataType::kF32 || is_half(x));
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  if (op.groups != 1) return refuse("groups");
  for (int i = 1; i < request.op_input_count; ++i)
    if (inputs[i].present && inputs[i].constant == nullptr)
      return refuse("weights or zero points that are no constants");
  const int rank = inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  for (size_t axis = 0; axis < op.strides.size(); ++axis)
    if (op.pads_begin[axis] < 0 || op.pads_end[axis] < 0) return refuse("negative padding");
  if (inputs[1].constant->count() == 0) return refuse("nothing to compute");
  const StartOffsets offsets(request);
  auto epilogues = Epilogues::make(offsets.rest(request), int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  auto kernel = std::make_unique<ImplicitGemmConv>(op, request, offsets, std::move(*epilogues));
  if (kernel->has_zeros_of_channels())
    return refuse("a zero point for each channel of the weights");
  return kernel;
}

constexpr KernelEntry kImplicitEntries[] = {
    entry<Conv, make_implicit>("cpu.conv.implicit_gemm", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> implicit_conv_entries() { return kImplicitEntries; }

}  // namespace anneal::cpu
