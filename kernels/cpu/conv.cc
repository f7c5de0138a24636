// Conv as a matrix product of input rows, fetched block by block, and packed weights:
// "cpu.conv.nhwc".
#include <algorithm>
#include <optional>
#include <tuple>

#include "anneal/kernels/cpu/conv_rows.h"
#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/epilogue.h"
#include "anneal/kernels/cpu/workspace.h"

namespace anneal::cpu {
namespace {

bool is_8bit(DataType dtype) { return dtype == DataType::kI8 || dtype == DataType::kU8; }

struct PreparedConv final : Prepared {
  explicit PreparedConv(TapeSpace made) : space(std::move(made)) {}
  TapeSpace space;
  Window window;
  ChannelsLast x;
  int64_t groups = 1, group_channels = 0, group_outputs = 0;
  PackLayout layout;         // of one group
  PackSource weights;        // of the first group, without data
  int64_t group_stride = 0;  // of weights, in elements
  GemmBlocks blocks;
  bool a_is_direct = false, c_is_direct = false;
  int64_t a_pitch = 0, c_row = 0;
  size_t staged_at = 0, packed_at = 0, columns_at = 0, parts_at = 0, part_bytes = 0;
  size_t c_at = 0, sums_at = 0, tape_at = 0;  // in a part
};

class NhwcConv final : public Kernel {
 public:
  NhwcConv(const Conv& op, const Request& request, Epilogue epilogue)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        int8_(is_8bit(request.inputs[0].type.dtype)),
        kernels_(int8_ ? int8_gemm(isa_of(request.device)) : f32_gemm(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {
    const Tensor* w = request.inputs[1].constant;
    const bool has_zero = request.op_input_count > 3 && request.inputs[3].present;
    const Tensor* zero = has_zero ? request.inputs[3].constant : nullptr;
    if (w == nullptr || (has_zero && zero == nullptr && kernels_.kind == GemmKind::kI16)) return;
    PreparedConv p = describe_weights(w->view(), zero != nullptr ? zero->view() : TensorView{});
    auto fresh =
        Tensor::allocate(DataType::kU8, {static_cast<int64_t>(p.layout.bytes()) * op_.groups});
    p.weights.zero = zero != nullptr ? zero->view().data : nullptr;
    for (int64_t i = 0; i < op_.groups * p.layout.panels(); ++i)
      pack_weights(p, w->view().data, p.weights.zero, i, fresh.data.data());
    packed_ = fresh.tensor;
  }

  std::unique_ptr<Prepared> prepare(std::span<const TensorView> inputs,
                                    std::span<const TensorView> outputs,
                                    int threads) const override {
    const TensorView& y = outputs[0];
    TapeSpace::Axes axes{{0}, 1};
    for (int axis = 2; axis < y.dims.rank(); ++axis) axes.rows.push_back(axis);
    auto made = std::make_unique<PreparedConv>(describe_weights(inputs[1], zero_point(inputs, 3)));
    PreparedConv& p = *made;
    p.space = epilogue_.space(inputs, outputs, axes);
    if (count(y.dims) == 0) return made;
    p.window = Window(op_, inputs[1].dims, 2, y.dims);
    p.x = ChannelsLast(inputs[0]);
    p.blocks = GemmBlocks(kernels_, p.window.outputs(), p.group_outputs, p.layout.lanes(),
                          p.x.images * p.groups, threads);
    p.a_is_direct = reads_directly(p);
    p.c_is_direct = !int8_ && epilogue_.is_copy() && rows_are_even(y, p.c_row);
    lay_out(p, threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedConv&>(*args.prepared);
    if (p.space.rows() * p.space.columns() == 0) return;
    const std::byte* x = args.inputs[0].data;
    if (p.x.staged) {
      p.x.stage(args.inputs[0], args.workspace + p.staged_at, load_, args.team);
      x = args.workspace + p.staged_at;
    }
    const std::byte* packed = packed_ ? packed_->bytes().data() : args.workspace + p.packed_at;
    if (!packed_) {
      args.team.for_ranges(p.groups * p.layout.panels(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          pack_weights(p, args.inputs[1].data, zero_point(args.inputs, 3).data, i,
                       args.workspace + p.packed_at);
      });
    }
    const bool has_w_zero = kernels_.kind == GemmKind::kU8S8 && compensate(p, args, packed);
    WorkspaceParts parts(args.workspace + p.parts_at, p.part_bytes);
    const auto run = [&](int64_t begin, int64_t end) {
      const WorkspaceParts::Part part(parts);
      for (int64_t item = begin; item < end; ++item)
        run_block(p, args, x, packed, has_w_zero, item, part.data());
    };
    args.team.for_ranges(p.x.images * p.groups * p.blocks.count(), 1, run);
  }

 private:
  TensorView zero_point(std::span<const TensorView> inputs, size_t i) const {
    return int8_ && i < op_inputs_ ? inputs[i] : TensorView{};
  }

  PreparedConv describe_weights(const TensorView& w, const TensorView& zero) const {
    PreparedConv p(TapeSpace{});
    const int axes = w.dims.rank() - 2;
    p.groups = op_.groups;
    p.group_channels = w.dims[1];
    p.group_outputs = w.dims[0] / op_.groups;
    p.group_stride = p.group_outputs * w.strides[0];
    p.weights.dtype = w.dtype;
    p.weights.column_stride = w.strides[0];
    for (int axis = 0; axis < axes; ++axis) {
      p.weights.k_dims.push_back(w.dims[2 + axis]);
      p.weights.k_strides.push_back(w.strides[2 + axis]);
    }
    p.weights.k_dims.push_back(w.dims[1]);
    p.weights.k_strides.push_back(w.strides[1]);
    if (zero.dims.rank() > 0 && count(zero.dims) > 1) p.weights.zero_stride = zero.strides[0];
    p.layout = PackLayout(kernels_, count(p.weights.k_dims), p.group_outputs);
    return p;
  }

  // i: a panel of a group.
  static void pack_weights(const PreparedConv& p, const std::byte* w, const std::byte* zero,
                           int64_t i, std::byte* to) {
    const int64_t group = i / p.layout.panels();
    PackSource source = p.weights;
    source.data = w + group * p.group_stride * static_cast<int64_t>(size_of(source.dtype));
    source.zero =
        zero == nullptr ? nullptr : zero + group * p.group_outputs * p.weights.zero_stride;
    pack_panel(p.layout, source, i % p.layout.panels(),
               to + group * static_cast<int64_t>(p.layout.bytes()));
  }

  // Whether input pixels are the rows of a product as they lie in memory.
  bool reads_directly(const PreparedConv& p) const {
    const Spatial& s = p.x.strides;
    const bool even = (p.x.size[1] == 1 || s[1] == s[2] * p.x.size[2]) &&
                      (p.x.size[0] == 1 || s[0] == s[2] * p.x.size[2] * p.x.size[1]);
    const bool elements = p.x.element == DataType::kF32 ||
                          (kernels_.kind == GemmKind::kU8S8 && p.x.element == DataType::kU8 &&
                           p.group_channels % kernels_.elements_per_lane == 0);
    const int64_t stride = s[2] * static_cast<int64_t>(size_of(p.x.element));
    // Rows a multiple of 4 KiB apart would push each other out of the first-level cache.
    return p.window.is_pointwise() && even && elements && (stride % 4096 != 0 || p.blocks.rows < 8);
  }

  // Whether the pixels of an image of y are all one step apart.
  static bool rows_are_even(const TensorView& y, int64_t& step) {
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

  void lay_out(PreparedConv& p, int threads) const {
    const auto groups = static_cast<size_t>(p.groups);
    p.packed_at = p.x.staged_bytes();
    p.columns_at = p.packed_at + (packed_ ? 0 : p.layout.bytes() * groups);
    const size_t columns_bytes = kernels_.kind == GemmKind::kU8S8
                                     ? static_cast<size_t>(p.layout.padded_columns()) * 8 * groups
                                     : 0;
    p.parts_at = align_up(p.columns_at + columns_bytes);
    p.a_pitch = static_cast<int64_t>(align_up(static_cast<size_t>(p.blocks.lanes * 4)) + 64);
    const auto rows = static_cast<size_t>(p.blocks.rows);
    p.c_at = p.a_is_direct ? 0 : rows * static_cast<size_t>(p.a_pitch);
    p.sums_at =
        p.c_at + (p.c_is_direct ? 0 : align_up(rows * static_cast<size_t>(p.blocks.columns) * 4));
    p.tape_at = p.sums_at + align_up(rows * 4);
    p.part_bytes = align_up(p.tape_at + epilogue_.scratch_bytes());
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
  }

  static int32_t* columns_of(const PreparedConv& p, const LaunchArgs& args, int64_t group) {
    return reinterpret_cast<int32_t*>(args.workspace + p.columns_at) +
           group * 2 * p.layout.padded_columns();
  }

  bool compensate(const PreparedConv& p, const LaunchArgs& args, const std::byte* packed) const {
    Compensation zero;
    zero.a_zero = load_zero_point(zero_point(args.inputs, 2)) + moved_by(args.inputs[0].dtype);
    zero.b_dtype = args.inputs[1].dtype;
    zero.b_zero_stride = p.weights.zero_stride;
    const std::byte* const first = zero_point(args.inputs, 3).data;
    bool any = false;
    for (int64_t group = 0; group < p.groups; ++group) {
      zero.b_zero =
          first == nullptr ? nullptr : first + group * p.group_outputs * zero.b_zero_stride;
      int32_t* const columns = columns_of(p, args, group);
      any |= zero.columns(p.layout, packed + group * static_cast<int64_t>(p.layout.bytes()),
                          columns, columns + p.layout.padded_columns());
    }
    return any;
  }

  void run_block(const PreparedConv& p, const LaunchArgs& args, const std::byte* x,
                 const std::byte* packed, bool has_w_zero, int64_t item, std::byte* memory) const {
    const int64_t within = item % p.blocks.count();
    const int64_t group = item / p.blocks.count() % p.groups;
    const int64_t image = item / p.blocks.count() / p.groups;
    const int64_t first_row = within / p.blocks.column_blocks * p.blocks.rows;
    const int64_t first_column = within % p.blocks.column_blocks * p.blocks.columns;
    const int64_t rows = std::min(p.blocks.rows, p.window.outputs() - first_row);
    const int64_t columns = std::min(p.blocks.columns, p.group_outputs - first_column);
    if (rows <= 0) return;
    const auto size = static_cast<int64_t>(size_of(p.x.element));
    const int32_t zero = load_zero_point(zero_point(args.inputs, 2));
    ConvRows source{p.window, p.x, kernels_};
    source.data = x + (image * p.x.image_stride + group * p.group_channels) * size;
    source.channels = p.group_channels;
    source.zero = zero;
    if (kernels_.kind == GemmKind::kU8S8) source.padding = zero + moved_by(p.x.element);

    GemmBlock block;
    block.rows = rows, block.columns = columns;
    block.panel_stride = p.layout.panel_bytes();
    const int64_t output = group * p.group_outputs + first_column;
    if (p.c_is_direct) {
      const TensorView& y = args.outputs[0];
      block.c = y.data + (image * y.strides[0] + first_row * p.c_row + output) * 4;
      block.c_stride = p.c_row;
    } else {
      block.c = memory + p.c_at;
      block.c_stride = p.blocks.columns;
      block.c_is_padded = true;
    }
    auto* const sums = reinterpret_cast<int32_t*>(memory + p.sums_at);
    const int32_t* initial = nullptr;
    if (kernels_.kind == GemmKind::kU8S8) {
      initial = columns_of(p, args, group) + first_column;
      block.initial = reinterpret_cast<const std::byte*>(initial);
      std::fill(sums, sums + rows, 0);
    }
    const std::byte* const panel = packed + group * static_cast<int64_t>(p.layout.bytes()) +
                                   first_column / p.layout.tile_columns * p.layout.panel_bytes();
    const int64_t per_lane = kernels_.elements_per_lane;
    int64_t lane = 0;
    do {  // once even if there are no channels
      block.lanes = std::min(p.blocks.lanes, p.layout.lanes() - lane);
      const int64_t k = lane * per_lane;
      const int64_t elements = std::min(block.lanes * per_lane, p.layout.k - k);
      if (p.a_is_direct) {
        block.a_stride = p.x.strides[2] * size;
        block.a = source.data + first_row * block.a_stride + k * size;
      } else {
        source.fetch(first_row, rows, k, elements, memory, p.a_pitch);
        block.a = memory;
        block.a_stride = p.a_pitch;
      }
      block.b = panel + lane * p.layout.tile_columns * 4;
      kernels_.block(block);
      if (has_w_zero) kernels_.row_sums(block.a, block.a_stride, rows, elements, sums);
      block.accumulate = true;
      lane += block.lanes;
    } while (lane < p.layout.lanes());

    if (has_w_zero)
      kernels_.subtract_outer(sums, initial + p.layout.padded_columns(), rows, columns,
                              reinterpret_cast<int32_t*>(block.c), block.c_stride);
    if (!p.c_is_direct)
      epilogue_.run(p.space, args, block.c, block.c_stride, image * p.window.outputs() + first_row,
                    rows, output, columns, memory + p.tape_at);
  }

  Conv op_;
  size_t op_inputs_;
  bool int8_;
  GemmKernels kernels_;
  LoadBlock load_;
  Epilogue epilogue_;
  std::optional<Tensor> packed_;  // the weights, if they are constants
};

Made make_nhwc(const Conv& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, w = request.inputs[1].type.dtype;
  const bool int8 = is_8bit(x) && is_8bit(w);
  const bool f32 = x == w && (x == DataType::kF32 || x == DataType::kF16 || x == DataType::kBF16);
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  std::string why_not;
  auto epilogue = Epilogue::make(request, int8 ? DataType::kI32 : DataType::kF32, why_not);
  if (!epilogue) return refuse(std::move(why_not));
  return {std::make_unique<NhwcConv>(op, request, std::move(*epilogue)), {}};
}

constexpr KernelEntry kEntries[] = {
    entry<Conv, make_nhwc>("cpu.conv.nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> nhwc_conv_entries() { return kEntries; }

}  // namespace anneal::cpu
