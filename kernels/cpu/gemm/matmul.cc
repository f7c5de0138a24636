// MatMul by packed panels and register tiles:
//   cpu.matmul.quantized_weights   of f32 by constant weights of 2, 4 or 8 bits, which stay so in
//                                  memory
//   cpu.matmul.half_weights        of f32 by constant weights of f16 or bf16, likewise
//   cpu.matmul.packed              all others; a few rows of f32 read a matrix that is no constant
//                                  where it lies, and for more rows each block packs its columns
#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/gemm/few_rows_product.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/gemm/matmul_plan.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

TensorView transposed(TensorView view) {
  const int rank = view.dims.rank();
  std::swap(view.dims[rank - 2], view.dims[rank - 1]);
  std::swap(view.strides[rank - 2], view.strides[rank - 1]);
  return view;
}

// A thread packs this much of a right-hand side that is no constant, or one panel, which stays in
// the second-level cache unless k is large.
constexpr int64_t kPackedBytes = 256 << 10;
// With more blocks of rows, packing the whole matrix once takes a small part of the time.
constexpr int64_t kMostRowBlocks = 4;
// Rows of a that are not read where they lie are copied for each block of columns.
constexpr int64_t kLeastColumnsOfACopy = 128;
// Smaller constants are packed once, also where the caller wants no copies of large ones.
constexpr size_t kLargeConstantBytes = size_t{1} << 20;

// Of a block of the product of few rows, whose sums stay in the first-level cache.
constexpr int64_t kFewRowsColumns = 256, kFewRowsBlock = 16;

class PackedMatMul final : public Kernel {
 public:
  PackedMatMul(const MatMul& op, const Request& request, Epilogues epilogues)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        int8_(is_8bit(request.inputs[0].type.dtype)),
        group_(scale_group(op, request)),
        kernels_(kernels_for(op, request)),
        load_(load_block(isa_of(request.device))),
        few_rows_{few_rows(isa_of(request.device), has_half_weights(kernels_.kind)
                                                       ? request.inputs[1].type.dtype
                                                       : DataType::kF32)},
        epilogues_(std::move(epilogues)) {
    const Tensor* b = request.inputs[1].constant;
    const bool has_zero = request.op_input_count > 3 && request.inputs[3].present;
    const Tensor* zero = has_zero ? request.inputs[3].constant : nullptr;
    may_have_zeros_ = has_zero || (op.b_encoding == WeightEncoding::kIntegers &&
                                   request.inputs[1].type.dtype == DataType::kU8);
    const bool needs_zero = has_zero && kernels_.kind == GemmKind::kI16;
    if (b == nullptr || (needs_zero && zero == nullptr)) return;
    // Integers of 8 bits need the sums of all columns first.
    if (request.packs_in_runs && group_ == 0 && kernels_.kind != GemmKind::kU8S8 &&
        b->bytes().size() >= kLargeConstantBytes)
      return;
    TensorView view = kernel_view(*b);
    if (op_.transpose_b) view = transposed(view);
    auto [layout, source] = right_side(view, zero != nullptr ? kernel_view(*zero) : TensorView{});
    if (group_ > 0) add_scales(source, kernel_view(*request.inputs[4].constant));
    const auto fill = [&, &layout = layout, &source = source](std::byte* to) {
      const int64_t parts = ceil_div(layout.panels(), kPanelsAtOnce);
      for_parts(request, matrices_of(view.dims) * parts, [&](int64_t part) {
        const int64_t matrix = part / parts, panel = part % parts * kPanelsAtOnce;
        pack_panels(layout, matrix_of(source, view, matrix), panel, panel + kPanelsAtOnce,
                    to + matrix * static_cast<int64_t>(layout.bytes()), PackTo::kMemory);
      });
    };
    packed_ = packed_constant(request, layout.form(),
                              layout.bytes() * static_cast<size_t>(matrices_of(view.dims)), fill);
    if (layout.has_zeros) {
      const auto* zeros = packed_zeros(layout);
      has_zeros_ = std::any_of(zeros, zeros + layout.groups() * layout.padded_columns(),
                               [](float number) { return number != 0; });
    }
  }

  static GemmKernels kernels_for(const MatMul& op, const Request& request) {
    const DataType a = request.inputs[0].type.dtype, b = request.inputs[1].type.dtype;
    const Isa isa = isa_of(request.device);
    if (scale_group(op, request) > 0) return weights_gemm(isa, op.b_encoding);
    return a == DataType::kF32 && is_half(b) ? half_weights_gemm(isa, b) : gemm_of(a, isa);
  }

  // How many rows of quantized weights share a scale; 0 of other weights.
  static int64_t scale_group(const MatMul& op, const Request& request) {
    if (request.op_input_count < 5 || !request.inputs[4].present) return 0;
    const int axis = op.transpose_b ? 1 : 0;
    const int64_t depth = request.inputs[1].type.shape[axis].value() * codes_in_byte(op.b_encoding);
    return depth / request.inputs[4].type.shape[axis].value();
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView& y = outputs[0];
    const TensorView a = op_.transpose_a ? transposed(inputs[0]) : inputs[0];
    const TensorView b = op_.transpose_b ? transposed(inputs[1]) : inputs[1];
    const int rank = y.dims.rank();
    TapeSpace::Axes axes{{}, rank - 1};
    for (int axis = 0; axis < rank - 1; ++axis) axes.rows.push_back(axis);
    auto made = std::make_unique<PreparedMatMul>(epilogues_.spaces(inputs, outputs, axes));
    PreparedMatMul& p = *made;
    p.m = y.dims[rank - 2], p.n = b.dims[b.dims.rank() - 1], p.k = a.dims[a.dims.rank() - 1];
    const Dims batches = part(y.dims, 0, rank - 2);
    p.batches = count(batches);
    if (count(y.dims) == 0) return made;
    p.a_row = a.strides[a.dims.rank() - 2], p.a_k = a.strides[a.dims.rank() - 1];
    p.a_batch = batch_offsets(batches, a.dims, a.strides);
    p.b_batch = batch_offsets(batches, b.dims, b.strides);
    p.b_matrix = batch_offsets(batches, b.dims, matrix_strides(b.dims));
    p.b_matrices = matrices_of(b.dims);
    std::tie(p.layout, p.b) = right_side(b, zero_point(inputs, 3));
    write_directly(p, outputs, batches);
    join_batches(p);

    if (has_few_rows(p, a, b)) {
      p.few_blocks = ceil_div(p.n, kFewRowsColumns);
      const int64_t items = p.batches * p.few_blocks;
      p.few_parts = std::min(ceil_div(p.m, FewRows::kMost), ceil_div(2 * threads, items));
      lay_out_few_rows(p, threads);
      return made;
    }
    const auto lane = static_cast<int64_t>(kernels_.elements_per_lane);
    p.blocks = GemmBlocks(kernels_, p.m, p.n, p.layout.lanes(), p.batches, threads);
    p.a_is_direct = reads_directly(a.dtype, p);
    p.packs_blocks = packs_blocks(p, threads);
    lay_out(p, lane, threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedMatMul&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    if (p.few_blocks > 0) return run_few_rows(p, args);
    if (p.packs_blocks) return run_packing(p, args);
    const std::byte* packed = packed_ ? packed_->bytes().data() : args.workspace + p.packed_at;
    if (!packed_) pack_right_side(p, args);
    const bool has_b_zero =
        int8_ && kernels_.kind == GemmKind::kU8S8 && compensate(p, args, packed);
    const auto run = [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      for (int64_t item = begin; item < end; ++item) {
        const int64_t batch = item / p.blocks.count(), within = item % p.blocks.count();
        const int64_t column = within % p.blocks.column_blocks * p.blocks.columns;
        run_block(p, args, packed + panels_at(p, p.b_matrix(batch), column), has_b_zero, batch,
                  within / p.blocks.column_blocks * p.blocks.rows, column, part);
      }
    };
    args.team.for_ranges(p.batches * p.blocks.count(), 1, run);
  }

 private:
  static int64_t matrices_of(const Dims& dims) { return count(part(dims, 0, dims.rank() - 2)); }
  static Dims matrix_strides(const Dims& dims) {
    return row_major_strides(part(dims, 0, dims.rank() - 2));
  }

  std::pair<PackLayout, PackSource> right_side(const TensorView& b, const TensorView& zero) const {
    const int rank = b.dims.rank();
    PackSource source;
    source.dtype = b.dtype;
    source.column_stride = b.strides[rank - 1];
    source.k_dims = {b.dims[rank - 2]};
    source.k_strides = {b.strides[rank - 2]};
    source.zero = zero.data;
    if (zero.dims.rank() > 0 && count(zero.dims) > 1)
      source.zero_stride = zero.strides[zero.dims.rank() - 1];
    source.k_dims[0] *= codes_in_byte(op_.b_encoding);
    PackLayout layout(kernels_, source.k_dims[0], b.dims[rank - 1]);
    layout.group = group_;
    layout.has_zeros = group_ > 0 && may_have_zeros_;
    return {layout, source};
  }

  void add_scales(PackSource& source, const TensorView& given) const {
    const TensorView scale = op_.transpose_b ? transposed(given) : given;
    source.scale = scale.as<float>();
    source.scale_group_stride = scale.strides[0];
    source.scale_stride = scale.dims[1] == 1 ? 0 : scale.strides[1];
  }
  const float* packed_zeros(const PackLayout& layout) const {
    return reinterpret_cast<const float*>(packed_->bytes().data() + layout.zeros_offset());
  }

  // One matrix of a whole view of b.
  static PackSource matrix_of(PackSource source, const TensorView& b, int64_t matrix) {
    const BatchOffsets offsets{part(b.dims, 0, b.dims.rank() - 2),
                               part(b.strides, 0, b.dims.rank() - 2)};
    source.data = b.data + offsets(matrix) * static_cast<int64_t>(size_of(b.dtype));
    return source;
  }

  // The product writes its sums to the outputs if nothing is to be done to them, and each output
  // begins where a panel does.
  void write_directly(PreparedMatMul& p, std::span<const TensorView> outputs,
                      const Dims& batches) const {
    p.c_is_direct = !int8_ && epilogues_.are_copies();
    int64_t begin = 0;
    for (const TensorView& y : outputs) {
      const int rank = y.dims.rank();
      p.c_is_direct =
          p.c_is_direct && y.strides[rank - 1] == 1 && begin % p.layout.tile_columns == 0;
      if (!p.c_is_direct) return p.c.clear();
      const int64_t end = begin + y.dims[rank - 1];
      p.c.push_back({begin, end, y.strides[rank - 2], batch_offsets(batches, y.dims, y.strides)});
      begin = end;
    }
  }

  // Batches become rows if they share one b and their rows are contiguous in a, and in c where the
  // product writes it directly.
  static void join_batches(PreparedMatMul& p) {
    for (int axis = p.a_batch.dims.rank() - 1; axis >= 0; --axis) {
      const int64_t size = p.a_batch.dims[axis];
      if (size == 1) continue;
      if (p.b_batch.strides[axis] != 0 || p.a_batch.strides[axis] != p.a_row * p.m ||
          std::any_of(p.c.begin(), p.c.end(),
                      [&](const DirectOutput& c) { return c.batch.strides[axis] != c.row * p.m; }))
        return;
      p.m *= size;
      p.batches /= size;
      for (BatchOffsets* offsets : {&p.a_batch, &p.b_batch, &p.b_matrix}) offsets->dims[axis] = 1;
      for (DirectOutput& c : p.c) c.batch.dims[axis] = 1;
    }
  }

  bool reads_directly(DataType dtype, const PreparedMatMul& p) const {
    const int64_t stride = p.a_row * static_cast<int64_t>(size_of(dtype));
    const bool lanes = kernels_.reads(dtype) && p.k % kernels_.elements_per_lane == 0;
    // Rows a multiple of 4 KiB apart would push each other out of the first-level cache.
    return lanes && p.a_k == 1 && (stride % 4096 != 0 || p.blocks.rows < 8);
  }

  // Whether each block of columns packs its part of b; then blocks become narrower. With 8-bit
  // operands, the sums of all columns are needed first.
  bool packs_blocks(PreparedMatMul& p, int threads) const {
    if (packed_ || kernels_.kind == GemmKind::kU8S8 || p.b_matrices < p.batches ||
        p.blocks.row_blocks > kMostRowBlocks)
      return false;
    const int64_t panel = std::max<int64_t>(p.layout.panel_bytes(), 1),
                  width = p.layout.tile_columns;
    const int64_t columns =
        std::min(p.blocks.columns, std::max<int64_t>(kPackedBytes / panel, 1) * width);
    const int64_t blocks = std::max<int64_t>(ceil_div(p.n, columns), 1);
    if (threads > 1 && p.batches * blocks < 4 * threads) return false;
    if (!p.a_is_direct && columns < std::min(p.blocks.columns, kLeastColumnsOfACopy)) return false;
    p.blocks.columns = columns, p.blocks.column_blocks = blocks;
    return true;
  }

  void lay_out(PreparedMatMul& p, int64_t lane, int threads) const {
    const size_t padded = static_cast<size_t>(p.layout.padded_columns());
    p.packed_at = 0;
    p.columns_at =
        packed_ || p.packs_blocks ? 0 : p.layout.bytes() * static_cast<size_t>(p.b_matrices);
    const size_t columns_bytes =
        kernels_.kind == GemmKind::kU8S8 ? padded * 8 * static_cast<size_t>(p.b_matrices) : 0;
    p.parts_at = cache_aligned(p.columns_at + columns_bytes);

    p.a_pitch = static_cast<int64_t>(
        cache_aligned(static_cast<size_t>(p.blocks.lanes * lane) * kernels_.element_size()) + 64);
    const auto rows = static_cast<size_t>(p.blocks.rows);
    p.c_at = p.a_is_direct ? 0 : rows * static_cast<size_t>(p.a_pitch);
    p.sums_at =
        p.c_at +
        (p.c_is_direct ? 0 : cache_aligned(rows * static_cast<size_t>(p.blocks.columns) * 4));
    p.tape_at = p.sums_at + cache_aligned(rows * 4);
    p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
    if (p.packs_blocks) {
      p.packed_at = p.part_bytes;
      p.part_bytes +=
          static_cast<size_t>(p.blocks.columns / p.layout.tile_columns * p.layout.panel_bytes());
      p.part_bytes = cache_aligned(p.part_bytes);
    }
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
  }

  // Bytes from the first panel of the first matrix to the one that has this column.
  static int64_t panels_at(const PreparedMatMul& p, int64_t matrix, int64_t column) {
    return matrix * static_cast<int64_t>(p.layout.bytes()) +
           column / p.layout.tile_columns * p.layout.panel_bytes();
  }

  void run_packing(const PreparedMatMul& p, const LaunchArgs& args) const {
    const TensorView b = op_.transpose_b ? transposed(args.inputs[1]) : args.inputs[1];
    PackSource source = p.b;
    source.zero = zero_point(args.inputs, 3).data;
    args.team.for_ranges(p.batches * p.blocks.column_blocks, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace + p.parts_at, p.part_bytes);
      std::byte* const packed = part + p.packed_at;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t batch = item / p.blocks.column_blocks;
        const int64_t column = item % p.blocks.column_blocks * p.blocks.columns;
        const int64_t panel = column / p.layout.tile_columns;
        pack_panels(p.layout, matrix_of(source, b, p.b_matrix(batch)), panel,
                    panel + p.blocks.columns / p.layout.tile_columns,
                    packed - panel * p.layout.panel_bytes());  // where panel 0 would be
        for (int64_t row = 0; row < p.m; row += p.blocks.rows)
          run_block(p, args, packed, false, batch, row, column, part);
      }
    });
  }

  void pack_right_side(const PreparedMatMul& p, const LaunchArgs& args) const {
    const TensorView b = op_.transpose_b ? transposed(args.inputs[1]) : args.inputs[1];
    PackSource source = p.b;
    source.zero = zero_point(args.inputs, 3).data;
    const int64_t parts = ceil_div(p.layout.panels(), kPanelsAtOnce);
    args.team.for_ranges(p.b_matrices * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t matrix = i / parts, panel = i % parts * kPanelsAtOnce;
        pack_panels(p.layout, matrix_of(source, b, matrix), panel, panel + kPanelsAtOnce,
                    args.workspace + p.packed_at + matrix * static_cast<int64_t>(p.layout.bytes()));
      }
    });
  }

  bool compensate(const PreparedMatMul& p, const LaunchArgs& args, const std::byte* packed) const {
    Compensation zero;
    zero.a_zero = load_zero_point(zero_point(args.inputs, 2)) + moved_by(args.inputs[0].dtype);
    zero.b_dtype = args.inputs[1].dtype;
    zero.b_zero = zero_point(args.inputs, 3).data;
    zero.b_zero_stride = p.b.zero_stride;
    bool any = false;
    for (int64_t matrix = 0; matrix < p.b_matrices; ++matrix) {
      int32_t* columns = columns_of(p, args, matrix);
      any = zero.columns(p.layout, packed + matrix * static_cast<int64_t>(p.layout.bytes()),
                         columns, columns + p.layout.padded_columns());
    }
    return any;
  }
  static int32_t* columns_of(const PreparedMatMul& p, const LaunchArgs& args, int64_t matrix) {
    return reinterpret_cast<int32_t*>(args.workspace + p.columns_at) +
           matrix * 2 * p.layout.padded_columns();
  }

  template <class T>
  static void gather(const std::byte* from, int64_t step, int64_t n, std::byte* to) {
    const auto* in = reinterpret_cast<const T*>(from);
    auto* const out = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i * step];
  }

  // Rows of a, elements [k, k + count), as a left-hand side.
  void fetch_rows(const PreparedMatMul& p, const LaunchArgs& args, const std::byte* a, int64_t rows,
                  int64_t k, int64_t count, std::byte* to) const {
    const DataType dtype = args.inputs[0].dtype;
    const auto size = static_cast<int64_t>(size_of(dtype));
    a += k * p.a_k * size;
    if (kernels_.kind == GemmKind::kF32 || converts_weights(kernels_.kind)) {
      const TapePort port{const_cast<std::byte*>(a), 0, p.a_row, p.a_k};
      return load_(dtype, port, to, p.a_pitch / 4, rows, count);
    }
    const int32_t zero = load_zero_point(zero_point(args.inputs, 2));
    for (int64_t row = 0; row < rows; ++row, a += p.a_row * size, to += p.a_pitch) {
      std::byte* out = to;
      alignas(2) std::byte gathered[512];
      for (int64_t i = 0; i < count; i += 256) {
        const int64_t n = std::min<int64_t>(count - i, 256);
        const std::byte* from = a + i * p.a_k * size;
        if (p.a_k != 1) {
          if (size == 1) {
            gather<uint8_t>(from, p.a_k, n, gathered);
          } else {
            gather<uint16_t>(from, p.a_k, n, gathered);
          }
          from = gathered;
        }
        kernels_.fetch(dtype, from, n, zero, out);
        out += n * static_cast<int64_t>(kernels_.element_size());
      }
      // Elements beyond k meet zeros of b.
      std::memset(out, 0, 4);
    }
  }

  // panel: the first column's.
  void run_block(const PreparedMatMul& p, const LaunchArgs& args, const std::byte* panel,
                 bool has_b_zero, int64_t batch, int64_t first_row, int64_t first_column,
                 std::byte* memory) const {
    const int64_t rows = std::min(p.blocks.rows, p.m - first_row);
    const int64_t columns = std::min(p.blocks.columns, p.n - first_column);
    if (rows <= 0) return;
    const TensorView& x = args.inputs[0];
    const std::byte* a =
        x.data + (p.a_batch(batch) + first_row * p.a_row) * static_cast<int64_t>(size_of(x.dtype));

    BlockSums sums{.rows = reinterpret_cast<int32_t*>(memory + p.sums_at),
                   .has_b_zero = has_b_zero};
    if (kernels_.kind == GemmKind::kU8S8)
      sums.columns = columns_of(p, args, p.b_matrix(batch)) + first_column;
    if (group_ > 0) {
      const std::byte* const packed = packed_->bytes().data();
      sums.scales = reinterpret_cast<const float*>(packed + p.layout.sums_offset()) + first_column;
      if (has_zeros_) sums.zeros = packed_zeros(p.layout) + first_column;
    }
    const auto size = static_cast<int64_t>(size_of(x.dtype));
    const auto left = [&](int64_t k, int64_t elements) -> std::pair<const std::byte*, int64_t> {
      if (p.a_is_direct) return {a + k * size, p.a_row * size};
      fetch_rows(p, args, a, rows, k, elements, memory);
      return {memory, p.a_pitch};
    };
    GemmBlock block;
    block.rows = rows;
    for (size_t i = 0; i < p.c.size(); ++i) {
      const DirectOutput& c = p.c[i];
      const int64_t from = std::max(first_column, c.begin);
      block.columns = std::min(first_column + columns, c.end) - from;
      if (block.columns <= 0) continue;
      const int64_t offset = c.batch(batch) + first_row * c.row + from - c.begin;
      block.c = args.outputs[i].data + offset * 4;
      block.c_stride = c.row;
      const int64_t panels = (from - first_column) / p.layout.tile_columns;
      run_lanes(kernels_, p.layout, p.blocks.lanes, panel + panels * p.layout.panel_bytes(),
                sums.from_column(from - first_column), block, left);
    }
    if (p.c_is_direct) return;
    block.columns = columns;
    block.c = memory + p.c_at;
    block.c_stride = p.blocks.columns;
    block.c_is_padded = true;
    const int64_t row = batch * p.m + first_row;
    std::optional<RegisterEpilogue> finish;
    if (!has_b_zero && columns % kRegisterColumns == 0)
      finish = epilogues_.finish(kernels_.finishes, p.spaces, args, row, first_column, columns);
    if (finish) block.finish = &*finish;
    run_lanes(kernels_, p.layout, p.blocks.lanes, panel, sums, block, left);
    if (!finish)
      epilogues_.run(p.spaces, args, {block.c, block.c_stride}, {row, rows, first_column, columns},
                     memory + p.tape_at);
  }

  bool has_few_rows(const PreparedMatMul& p, const TensorView& a, const TensorView& b) const {
    if (packed_ || a.dtype != DataType::kF32 || p.a_k != 1) return false;
    const bool is_f32 = kernels_.kind == GemmKind::kF32 && b.dtype == DataType::kF32;
    // A transposed matrix adds up lanes, but weights in 16 bits give the bits of packed ones.
    const bool is_half = has_half_weights(kernels_.kind) && p.b.column_stride == 1;
    return (is_f32 || is_half) && FewRowsProduct::takes(few_rows_of(p, is_f32));
  }

  static FewRowsOperands few_rows_of(const PreparedMatMul& p, bool b_is_f32) {
    FewRowsOperands operands{.rows = p.m, .a_stride = p.a_row};
    operands.k = p.k, operands.columns = p.n;
    operands.b_k = p.b.k_strides[0], operands.b_column = p.b.column_stride;
    operands.b_is_f32 = b_is_f32;
    return operands;
  }

  void lay_out_few_rows(PreparedMatMul& p, int threads) const {
    const bool is_direct = p.c_is_direct && p.c.size() == 1;
    p.c_is_direct = is_direct;
    const int64_t sums = is_direct ? 0 : std::min(p.m, kFewRowsBlock) * kFewRowsColumns;
    p.tape_at = cache_aligned(static_cast<size_t>(sums) * 4);
    p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
    p.workspace_bytes = p.part_bytes * static_cast<size_t>(threads);
  }

  void run_few_rows(const PreparedMatMul& p, const LaunchArgs& args) const {
    const int64_t items = p.few_blocks * p.few_parts;
    args.team.for_ranges(p.batches * items, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace, p.part_bytes);
      for (int64_t item = begin; item < end; ++item)
        run_few_rows(p, args, item / items, item % items, part);
    });
  }

  // Some rows and columns of a product.
  void run_few_rows(const PreparedMatMul& p, const LaunchArgs& args, int64_t batch, int64_t item,
                    std::byte* memory) const {
    const int64_t part = item / p.few_blocks, block = item % p.few_blocks;
    const int64_t fours = ceil_div(p.m, FewRows::kMost);
    const int64_t end = std::min(fours * (part + 1) / p.few_parts * FewRows::kMost, p.m);
    const int64_t column = p.n * block / p.few_blocks;
    FewRowsOperands operands = few_rows_of(p, args.inputs[1].dtype == DataType::kF32);
    operands.columns = p.n * (block + 1) / p.few_blocks - column;
    operands.b = args.inputs[1].data + (p.b_batch(batch) + column * operands.b_column) *
                                           static_cast<int64_t>(size_of(args.inputs[1].dtype));
    for (int64_t row = fours * part / p.few_parts * FewRows::kMost; row < end;
         row += operands.rows) {
      operands.rows = std::min(end - row, p.c_is_direct ? end : kFewRowsBlock);
      operands.a = args.inputs[0].as<const float>() + p.a_batch(batch) + row * p.a_row;
      operands.c = reinterpret_cast<float*>(memory);
      operands.c_stride = kFewRowsColumns;
      if (p.c_is_direct) {
        operands.c_stride = p.c[0].row;
        operands.c = args.outputs[0].as<float>() + p.c[0].batch(batch) + row * p.c[0].row + column;
      }
      few_rows_.run(operands);
      if (p.c_is_direct) continue;
      epilogues_.run(p.spaces, args, {memory, kFewRowsColumns},
                     {batch * p.m + row, operands.rows, column, operands.columns},
                     memory + p.tape_at);
    }
  }

  // The zero point at this position, if there is one.
  TensorView zero_point(std::span<const TensorView> inputs, size_t i) const {
    return int8_ && i < op_inputs_ ? inputs[i] : TensorView{};
  }

  MatMul op_;
  size_t op_inputs_;
  bool int8_;
  int64_t group_;  // of quantized weights: rows that share a scale; else 0
  // Of quantized weights, before and after packing.
  bool may_have_zeros_ = false, has_zeros_ = false;
  GemmKernels kernels_;
  LoadBlock load_;
  FewRowsProduct few_rows_;
  Epilogues epilogues_;
  std::optional<Tensor> packed_;  // b, if it is a constant
};

KernelResult make_quantized_weights(const MatMul& op, const Request& request) {
  if (request.op_input_count < 5 || !request.inputs[4].present)
    return refuse("weights without scales");
  if (request.inputs[0].type.dtype != DataType::kF32) return refuse("data that is not f32");
  for (const size_t i : {1, 3, 4})
    if (request.inputs[i].present && request.inputs[i].constant == nullptr)
      return refuse("weights, zero points or scales that are not constant");
  if (request.inputs[1].constant->count() == 0) return refuse("no weights");
  if (isa_of(request.device) < Isa::kAvx2 && !request.ignore_speed_heuristics)
    return refuse("without AVX2 f32 weights take less time");
  auto epilogues = Epilogues::make(request, DataType::kF32, std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<PackedMatMul>(op, request, std::move(*epilogues));
}

KernelResult make_half_weights(const MatMul& op, const Request& request) {
  if (request.inputs[0].type.dtype != DataType::kF32 || !is_half(request.inputs[1].type.dtype))
    return refuse("no weights of f16 or bf16 for data of f32");
  if (request.inputs[1].constant == nullptr && !request.ignore_speed_heuristics)
    return refuse("weights that are not constant are faster in f32");
  if (isa_of(request.device) < Isa::kAvx2 && !request.ignore_speed_heuristics)
    return refuse("without AVX2 f32 weights take less time");
  auto epilogues = Epilogues::make(request, DataType::kF32, std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<PackedMatMul>(op, request, std::move(*epilogues));
}

KernelResult make_packed(const MatMul& op, const Request& request) {
  const DataType a = request.inputs[0].type.dtype, b = request.inputs[1].type.dtype;
  const bool int8 = is_8bit(a) && is_8bit(b);
  const bool f32 = a == b && (a == DataType::kF32 || is_half(a));
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  if (request.op_input_count > 2 && request.inputs[2].present) {
    const Shape& zero = request.inputs[2].type.shape;
    for (const Size size : zero)
      if (!size.known() || size.value() != 1) return refuse("a zero point per row");
  }
  auto epilogues = Epilogues::make(request, int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<PackedMatMul>(op, request, std::move(*epilogues));
}

constexpr KernelEntry kMatmulEntries[] = {
    entry<MatMul, make_quantized_weights>("cpu.matmul.quantized_weights", Layout::kRowMajor),
    entry<MatMul, make_half_weights>("cpu.matmul.half_weights", Layout::kRowMajor),
    entry<MatMul, make_packed>("cpu.matmul.packed", Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> packed_matmul_entries() { return kMatmulEntries; }

}  // namespace anneal::cpu
