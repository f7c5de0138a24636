// LinearAttention: "cpu.linear_attention". Each thread takes some columns of a head's state, which
// stay in the first-level cache, through all positions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/transpose_square.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/recurrent/linear_columns.h"

namespace anneal::cpu {
namespace {

enum LinearInput { kQuery, kKey, kValue, kState, kDecay, kBeta };

// The columns of a state in memory.
struct StateView {
  float* data = nullptr;
  int64_t row_step = 0, column_step = 0;
};

struct PreparedLinearAttention final : PreparedKernel {
  int64_t rows = 0, blocks = 0, items = 0, grain = 1;
  size_t part_bytes = 0;  // of the workspace, of each thread
};

class LinearAttentionKernel final : public Kernel {
 public:
  LinearAttentionKernel(const LinearAttention& op, Isa isa) : op_(op), run_(linear_columns(isa)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedLinearAttention>();
    PreparedLinearAttention& p = *made;
    // Other sizes of empty outputs are not limited by memory.
    if (count(outputs[0].dims) == 0 && count(outputs[1].dims) == 0) return made;
    const Dims& v = inputs[kValue].dims;
    p.rows = inputs[kKey].dims[3];
    p.blocks = ceil_div(v[3], kStateColumns);
    p.items = v[0] * v[2] * p.blocks;
    p.grain = kGrain / ((v[1] + 1) * (p.rows + 1) * 4) + 1;
    const int64_t floats = p.rows * kStateColumns + linear_columns_scratch(p.rows);
    p.part_bytes = cache_aligned(static_cast<size_t>(floats) * sizeof(float));
    p.workspace_bytes = p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedLinearAttention&>(*args.prepared);
    args.team.for_ranges(p.items, p.grain, [&](int64_t begin, int64_t end) {
      auto* const part = reinterpret_cast<float*>(part_of(args.team, args.workspace, p.part_bytes));
      for (int64_t item = begin; item < end; ++item) run_item(p, args, item, part);
    });
  }

 private:
  void run_item(const PreparedLinearAttention& p, const LaunchArgs& args, int64_t item,
                float* part) const {
    const auto has = [&](size_t i) {
      return i < args.inputs.size() && args.inputs[i].data != nullptr;
    };
    const Dims& v = args.inputs[kValue].dims;
    const int64_t heads = v[2], queries = args.inputs[kQuery].dims[2];
    const int64_t batch = item / p.blocks / heads, head = item / p.blocks % heads;
    const int64_t first = item % p.blocks * kStateColumns;
    // Of an input with another number of heads, where consecutive ones share one.
    const auto own_head = [&](size_t i) { return head * args.inputs[i].dims[2] / heads; };
    const auto rows_of = [&](size_t i, int64_t of_head, int64_t column = 0) -> PositionRows {
      if (!has(i)) return {};
      const TensorView& x = args.inputs[i];
      const Dims& steps = x.strides;
      const int64_t offset = batch * steps[0] + of_head * steps[2] + column;
      return {x.as<const float>() + offset, steps[1]};
    };
    LinearColumns columns;
    columns.positions = v[1];
    columns.rows = p.rows;
    columns.columns = std::min(kStateColumns, v[3] - first);
    columns.scratch = part + p.rows * kStateColumns;
    columns.q = rows_of(kQuery, own_head(kQuery));
    columns.k = rows_of(kKey, own_head(kKey));
    columns.v = rows_of(kValue, head, first);
    columns.decay = rows_of(kDecay, head);
    columns.decay_is_by_row = has(kDecay) && args.inputs[kDecay].dims[3] > 1;
    if (has(kBeta)) columns.beta = rows_of(kBeta, args.inputs[kBeta].dims[2] > 1 ? head : 0);
    columns.readers = std::max<int64_t>(queries / heads, 1);
    columns.reader_step = args.inputs[kQuery].strides[2];
    columns.scale = op_.scale;
    const TensorView& y = args.outputs[0];
    columns.y =
        y.as<float>() + batch * y.strides[0] + head * columns.readers * y.strides[2] + first;
    columns.y_step = y.strides[1];
    columns.y_reader_step = y.strides[2];

    const auto state_of = [&](const TensorView& x) -> StateView {
      const int64_t row_step = x.strides[op_.transposed ? 3 : 2];
      const int64_t column_step = x.strides[op_.transposed ? 2 : 3];
      return {x.as<float>() + batch * x.strides[0] + head * x.strides[1] + first * column_step,
              row_step, column_step};
    };
    columns.first.data = columns.between.data = columns.last.data = part;
    const bool is_whole = columns.columns == kStateColumns && columns.positions > 0;
    const auto is_direct = [&](const StateView& x) { return is_whole && x.column_step == 1; };
    if (has(kState)) {
      const StateView from = state_of(args.inputs[kState]);
      if (is_direct(from)) {
        columns.first = {from.data, from.row_step};
      } else {
        if (!is_whole) clear(part, p.rows);
        copy(from, {part, kStateColumns, 1}, p.rows, columns.columns);
      }
    } else {
      clear(part, p.rows);
    }
    const StateView to = state_of(args.outputs[1]);
    const bool is_stored = is_direct(to);
    if (is_stored) columns.last = {to.data, to.row_step};
    if (columns.positions > 0) run_(columns);
    if (!is_stored) copy({part, kStateColumns, 1}, to, p.rows, columns.columns);
  }

  static void clear(float* part, int64_t rows) {
    std::memset(part, 0, static_cast<size_t>(rows * kStateColumns) * sizeof(float));
  }
  static void copy(const StateView& from, const StateView& to, int64_t rows, int64_t columns) {
    const auto at = [](const StateView& x, int64_t row, int64_t column) {
      return x.data + row * x.row_step + column * x.column_step;
    };
    if (from.column_step == 1 && to.column_step == 1) {
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(at(to, row, 0), at(from, row, 0), static_cast<size_t>(columns) * sizeof(float));
      return;
    }
    const bool gathers = from.row_step == 1 && to.column_step == 1;
    const bool is_by_squares = gathers || (from.column_step == 1 && to.row_step == 1);
    const int64_t square_rows = is_by_squares ? rows / 4 * 4 : 0;
    const int64_t square_columns = is_by_squares ? columns / 4 * 4 : 0;
    for (int64_t row = 0; row < square_rows; row += 4)
      for (int64_t column = 0; column < square_columns; column += 4)
        transpose_square(at(from, row, column), gathers ? from.column_step : from.row_step,
                         at(to, row, column), gathers ? to.row_step : to.column_step);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = row < square_rows ? square_columns : 0; column < columns; ++column)
        *at(to, row, column) = *at(from, row, column);
  }

  LinearAttention op_;
  LinearColumnsFunction run_;
};

KernelResult make_linear_attention(const LinearAttention& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  const auto is_dense = [](const Operand& x) {
    return !x.present || x.type.shape[3] == Size(1) || x.strides[3] == Size(1);
  };
  for (size_t i = 0; i < request.inputs.size(); ++i)
    if (i != kState && i != kBeta && !is_dense(request.inputs[i]))
      return refuse(fmt::format("numbers of input {} lie apart", i));
  if (!is_dense(request.outputs[0])) return refuse("numbers of the output lie apart");
  return std::make_unique<LinearAttentionKernel>(op, isa_of(request.device));
}

constexpr KernelEntry kLinearAttentionEntries[] = {
    entry<LinearAttention, make_linear_attention>("cpu.linear_attention"),
};

}  // namespace

std::span<const KernelEntry> linear_attention_entries() { return kLinearAttentionEntries; }

}  // namespace anneal::cpu
