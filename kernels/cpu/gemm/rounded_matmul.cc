// MatMul of f32 by integers of 2, 4 or 8 bits, by sums of integers:
//   cpu.matmul.rounded_rows   rounds each row to 8 bits, group by group, where the left side may be
//                             rounded (MatMul::may_round_a)
//   cpu.matmul.split_rows     splits each row into three of 8 bits, which together have the digits
//                             of f32
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/gemm/rounded_dots.h"
#include "anneal/kernels/cpu/program/epilogue.h"

namespace anneal::cpu {
namespace {

struct PreparedRows final : PreparedKernel {
  explicit PreparedRows(Epilogues::Spaces made) : spaces(std::move(made)) {}
  Epilogues::Spaces spaces;
  Dims row_dims, row_strides;  // of the left side
  int64_t rows = 0, column_stride = 1;
  int64_t block_rows = 1, block_panels = 1, row_blocks = 0, column_blocks = 0;
  // Whether each thread rounds the rows of its blocks: there are enough blocks of rows for all
  // threads, and rounded rows need the memory of few. Else rows are rounded before, for all
  // threads.
  bool rounds_by_block = false;
  // Byte offsets from where rounded rows are, of the threads' parts, and in a part.
  size_t scales_at = 0, sums_at = 0, parts_at = 0, part_bytes = 0, results_at = 0, tape_at = 0;
};

class RoundedMatMul final : public Kernel {
 public:
  // parts: rows of 8 bits for each row.
  RoundedMatMul(const Request& request, const CodeLayout& layout, const CodeSource& source,
                int64_t parts, Epilogues epilogues)
      : layout_(layout),
        parts_(parts),
        round_(round_row(isa_of(request.device))),
        rest_(rounding_rest(isa_of(request.device))),
        dots_(rounded_dots(isa_of(request.device))),
        epilogues_(std::move(epilogues)),
        packed_(pack(request, layout, source)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    constexpr int64_t kMostRoundedRows = 32, kMostPanels = 32, kItemsOfThread = 4;
    const int64_t most_rows = kMostRoundedRows / parts_;
    const TensorView &a = inputs[0], &y = outputs[0];
    const int rank = y.dims.rank();
    TapeSpace::Axes axes{{}, rank - 1};
    for (int axis = 0; axis < rank - 1; ++axis) axes.rows.push_back(axis);
    auto made = std::make_unique<PreparedRows>(epilogues_.spaces(inputs, outputs, axes));
    PreparedRows& p = *made;
    p.row_dims = part(a.dims, 0, rank - 1);
    p.row_strides = part(a.strides, 0, rank - 1);
    p.rows = count(p.row_dims);
    p.column_stride = a.strides[rank - 1];
    p.row_blocks = ceil_div(p.rows, most_rows);
    if (p.rows == 0) return made;
    p.block_rows = ceil_div(p.rows, p.row_blocks);
    const int64_t wanted = ceil_div(threads * kItemsOfThread, p.row_blocks);
    p.block_panels = threads == 1
                         ? kMostPanels
                         : std::clamp<int64_t>(layout_.panels() / wanted / 4 * 4, 4, kMostPanels);
    p.column_blocks = ceil_div(layout_.panels(), p.block_panels);

    p.rounds_by_block = p.row_blocks >= threads * kItemsOfThread;
    const auto rows = static_cast<size_t>((p.rounds_by_block ? p.block_rows : p.rows) * parts_);
    const auto groups = static_cast<size_t>(layout_.groups());
    p.scales_at = cache_aligned(rows * static_cast<size_t>(layout_.k));
    p.sums_at = p.scales_at + cache_aligned(rows * groups * 4);
    const size_t rounded_bytes = p.sums_at + cache_aligned(rows * groups * 4);
    p.parts_at = p.rounds_by_block ? 0 : rounded_bytes;
    p.results_at = p.rounds_by_block ? rounded_bytes : 0;
    const size_t results =
        static_cast<size_t>(p.block_rows * parts_ * p.block_panels * CodeLayout::kColumns) * 4;
    // A row whose elements lie apart, and what rounding leaves of one, is where results come later.
    p.tape_at = p.results_at + cache_aligned(std::max(results, static_cast<size_t>(layout_.k) * 4));
    p.part_bytes = cache_aligned(p.tape_at + epilogues_.scratch_bytes());
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedRows&>(*args.prepared);
    if (p.rows == 0) return;
    const auto part = [&] { return part_of(args.team, args.workspace + p.parts_at, p.part_bytes); };
    if (p.rounds_by_block)
      return args.team.for_ranges(p.row_blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t row = block * p.block_rows;
          const int64_t rows = std::min(p.block_rows, p.rows - row);
          for (int64_t i = 0; i < rows; ++i)
            round(p, args, row + i, held_rows(p, part(), i), part());
          for (int64_t i = 0; i < p.column_blocks; ++i)
            run_block(p, args, block, i, held_rows(p, part(), 0), part());
        }
      });
    const auto held = [&](int64_t row) { return held_rows(p, args.workspace, row); };
    args.team.for_ranges(p.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) round(p, args, row, held(row), part());
    });
    args.team.for_ranges(p.row_blocks * p.column_blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t block = item / p.column_blocks;
        run_block(p, args, block, item % p.column_blocks, held(block * p.block_rows), part());
      }
    });
  }

 private:
  static Tensor pack(const Request& request, const CodeLayout& layout, const CodeSource& source) {
    const auto fill = [&](std::byte* to) {
      for_parts(request, layout.panels(),
                [&](int64_t panel) { pack_code_panel(layout, source, panel, to); });
    };
    return packed_constant(request, layout.form(), cache_aligned(layout.bytes()), fill);
  }

  // The first part of the row that is number `row` of those in this memory.
  RoundedRow held_rows(const PreparedRows& p, std::byte* memory, int64_t row) const {
    const int64_t first = row * parts_, groups = layout_.groups();
    return {reinterpret_cast<int8_t*>(memory) + first * layout_.k,
            reinterpret_cast<float*>(memory + p.scales_at) + first * groups,
            reinterpret_cast<int32_t*>(memory + p.sums_at) + first * groups};
  }

  void round(const PreparedRows& p, const LaunchArgs& args, int64_t row, RoundedRow to,
             std::byte* part) const {
    auto* const memory = reinterpret_cast<float*>(part + p.results_at);
    const float* from =
        args.inputs[0].as<float>() + dot(coordinates(p.row_dims, row), p.row_strides);
    if (p.column_stride != 1) {
      for (int64_t k = 0; k < layout_.k; ++k) memory[k] = from[k * p.column_stride];
      from = memory;
    }
    round_(layout_, from, to);
    for (int64_t i = 1; i < parts_; ++i) {
      rest_(layout_, from, to, memory);
      from = memory;
      to = {to.q + layout_.k, to.scales + layout_.groups(), to.sums + layout_.groups()};
      round_(layout_, from, to);
    }
  }

  // The sum of the parts of each row, the smallest first, where the results of the first rows were.
  void add_parts(const RoundedBlock& block) const {
    if (parts_ == 1) return;
    for (int64_t row = 0; row < block.row_count / parts_; ++row) {
      const float* const of_parts = block.c + row * parts_ * block.c_stride;
      float* const to = block.c + row * block.c_stride;
      for (int64_t n = 0; n < block.c_stride; ++n) {
        float sum = of_parts[(parts_ - 1) * block.c_stride + n];
        for (int64_t i = parts_ - 1; i-- > 0;) sum += of_parts[i * block.c_stride + n];
        to[n] = sum;
      }
    }
  }

  // Some rows, of which rounded_rows is the first one, by some columns.
  void run_block(const PreparedRows& p, const LaunchArgs& args, int64_t row_block,
                 int64_t column_block, const RoundedRow& rounded_rows, std::byte* part) const {
    const int64_t row = row_block * p.block_rows;
    const int64_t rows = std::min(p.block_rows, p.rows - row);
    const int64_t panel = column_block * p.block_panels;
    const int64_t panels = std::min(p.block_panels, layout_.panels() - panel);
    if (rows <= 0) return;
    const RoundedBlock block{.layout = &layout_,
                             .panel = packed_.bytes().data() + panel * layout_.panel_bytes(),
                             .panels = panels,
                             .rows = rounded_rows,
                             .row_count = rows * parts_,
                             .c = reinterpret_cast<float*>(part + p.results_at),
                             .c_stride = panels * CodeLayout::kColumns};
    dots_(block);
    add_parts(block);
    const int64_t column = panel * CodeLayout::kColumns;
    epilogues_.run(p.spaces, args, {block.c, block.c_stride},
                   {row, rows, column, std::min(block.c_stride, layout_.n - column)},
                   part + p.tape_at);
  }

  CodeLayout layout_;
  int64_t parts_;
  RoundRow round_;
  RoundingRest rest_;
  RoundedDots dots_;
  Epilogues epilogues_;
  Tensor packed_;
};

// The code of the zero point of all weights of 8 bits; nullopt if they have several.
std::optional<int> one_zero_point(const Request& request, bool is_signed) {
  const int middle = is_signed ? 128 : 0;  // the code of 0
  if (!request.inputs[3].present) return middle;
  const std::span<const std::byte> zeros = request.inputs[3].constant->bytes();
  if (std::ranges::adjacent_find(zeros, std::not_equal_to<>()) != zeros.end()) return std::nullopt;
  return std::to_integer<int>(zeros.front()) ^ middle;
}

struct CodedWeights {
  CodeLayout layout;  // without scale_factor
  CodeSource source;
};
// REQUIRES: codes and scales are constants, as MatMul has them
CodedWeights weights_of(const MatMul& op, const Request& request) {
  const Tensor &codes = *request.inputs[1].constant, &scales = *request.inputs[4].constant;
  const auto bytes_of = [](const Tensor& tensor) {
    return reinterpret_cast<const uint8_t*>(tensor.bytes().data());
  };
  CodeSource source{.codes = bytes_of(codes),
                    .is_signed = codes.dtype() == DataType::kI8,
                    .scales = scales.as<float>().data()};
  if (request.inputs[3].present) source.zeros = bytes_of(*request.inputs[3].constant);
  const int of_column = op.transpose_b ? 0 : 1, along_k = 1 - of_column;  // axes
  const auto stride = [&](const Tensor& tensor, int axis) {
    return axis == 1 ? int64_t{1} : tensor.dims()[1];
  };
  source.column_bytes = stride(codes, of_column);
  source.k_bytes = stride(codes, along_k);
  source.factor_stride = scales.dims()[of_column] == 1 ? 0 : stride(scales, of_column);
  source.group_stride = stride(scales, along_k);
  CodeLayout layout{.k = codes.dims()[along_k] * codes_in_byte(op.b_encoding),
                    .n = codes.dims()[of_column],
                    .bits = bits_of(op.b_encoding)};
  layout.group = layout.k / scales.dims()[along_k];
  layout.zero = 1 << (layout.bits - 1);
  if (layout.bits == 8) {
    const std::optional<int> zero = one_zero_point(request, source.is_signed);
    if (zero) source.zeros = nullptr;
    layout.zero = zero.value_or(0);
  }
  layout.has_zeros = source.zeros != nullptr;
  return {layout, source};
}

// For rows in `parts` parts. A large number costs the others of its group digits, so groups of
// split rows are short, and several of them may share a scale. why_slow: of this CPU, or empty.
KernelResult make_kernel(const MatMul& op, const Request& request, int64_t parts,
                         std::string why_slow) {
  constexpr int64_t kMostSplitGroup = 64;
  if (!has_integers(op.b_encoding) || request.op_input_count < 5 || !request.inputs[4].present)
    return refuse("the weights are no integers with scales");
  const bool is_split = parts > 1;
  if (!op.transpose_b && !(is_split && op.b_encoding == WeightEncoding::kIntegers))
    return refuse("the codes of a column do not follow each other");
  if (op.transpose_a) return refuse("a transposed left side");
  if (request.inputs[0].type.dtype != DataType::kF32) return refuse("data that is not f32");
  for (const size_t i : {1, 3, 4})
    if (request.inputs[i].present && request.inputs[i].constant == nullptr)
      return refuse("weights, zero points or scales that are not constant");
  if (request.inputs[1].constant->count() == 0) return refuse("no weights");
  auto [layout, source] = weights_of(op, request);
  if (layout.group % CodeLayout::kLeastGroup != 0)
    return refuse("scales of groups that are no multiple of 16");
  if (layout.group > CodeLayout::kMostGroup) return refuse("sums that may overflow 32 bits");
  layout.has_f32_scales = is_split;
  if (is_split) {
    const int64_t whole = layout.group;
    layout.group = std::min(whole, kMostSplitGroup);
    while (whole % layout.group != 0) layout.group -= CodeLayout::kLeastGroup;
    source.groups_of_factor = whole / layout.group;
  } else {
    const auto factor =
        scale_factor_of(request.inputs[4].constant->as<float>(), layout.k / layout.group);
    if (!factor) return refuse("scales that f16 cannot hold");
    layout.scale_factor = *factor;
  }
  if (!why_slow.empty() && !request.ignore_speed_heuristics) return refuse(std::move(why_slow));
  auto epilogues = Epilogues::make(request, DataType::kF32, std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<RoundedMatMul>(request, layout, source, parts, std::move(*epilogues));
}

KernelResult make_rounded(const MatMul& op, const Request& request) {
  if (!op.may_round_a) return refuse("the left side may not be rounded");
  const bool is_slow = isa_of(request.device) < Isa::kAvx2;
  return make_kernel(op, request, 1, is_slow ? "without AVX2 f32 weights take less time" : "");
}

KernelResult make_split(const MatMul& op, const Request& request) {
  const bool is_slow = isa_of(request.device) < Isa::kFull;
  return make_kernel(op, request, 3, is_slow ? "without VNNI f32 weights take less time" : "");
}

constexpr KernelEntry kEntries[] = {
    entry<MatMul, make_rounded>("cpu.matmul.rounded_rows", Layout::kRowMajor, false),
    entry<MatMul, make_split>("cpu.matmul.split_rows", Layout::kRowMajor, false),
};

}  // namespace

std::span<const KernelEntry> rounded_matmul_entries() { return kEntries; }

}  // namespace anneal::cpu
