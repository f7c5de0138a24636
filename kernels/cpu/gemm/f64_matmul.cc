// Products of f64: "cpu.matmul.f64". A work item copies a panel of columns of b and multiplies all
// rows of a by it.
#include <algorithm>
#include <memory>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/gemm/f64_tile.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kPanel = F64Tile::kColumns;

struct PreparedF64 final : PreparedKernel {
  Walk<3> batches{{}, {}};  // offsets of the matrices of a, b and y
  int64_t rows = 0, columns = 0, depth = 0, panels = 0;
  int64_t a_row = 0, a_k = 0, b_k = 0, b_column = 0, y_row = 0, y_column = 0;
  size_t part_bytes = 0;  // of a thread
};

// The strides of a tensor's leading axes for those of y.
Dims batch_strides(const TensorView& view, const Dims& batches) {
  Dims strides = Dims::filled(batches.rank(), 0);
  const int missing = batches.rank() - (view.dims.rank() - 2);
  for (int axis = 0; axis < view.dims.rank() - 2; ++axis)
    if (view.dims[axis] != 1) strides[missing + axis] = view.strides[axis];
  return strides;
}

class F64MatMul final : public Kernel {
 public:
  F64MatMul(const MatMul& op, Isa isa)
      : transpose_a_(op.transpose_a), transpose_b_(op.transpose_b), tile_(f64_tile(isa)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedF64>();
    PreparedF64& p = *made;
    const TensorView &a = inputs[0], &b = inputs[1], &y = outputs[0];
    const int last_a = a.dims.rank() - 1, last_b = b.dims.rank() - 1, last = y.dims.rank() - 1;
    const Dims batches = part(y.dims, 0, last - 1);
    p.batches = Walk<3>(batches, {batch_strides(a, batches), batch_strides(b, batches),
                                  part(y.strides, 0, last - 1)});
    p.rows = y.dims[last - 1], p.columns = y.dims[last];
    p.depth = a.dims[transpose_a_ ? last_a - 1 : last_a];
    p.panels = ceil_div(p.columns, kPanel);
    p.a_row = a.strides[last_a - 1], p.a_k = a.strides[last_a];
    if (transpose_a_) std::swap(p.a_row, p.a_k);
    p.b_k = b.strides[last_b - 1], p.b_column = b.strides[last_b];
    if (transpose_b_) std::swap(p.b_k, p.b_column);
    p.y_row = y.strides[last - 1], p.y_column = y.strides[last];
    p.part_bytes =
        cache_aligned(static_cast<size_t>((p.depth + F64Tile::kRows) * kPanel) * sizeof(double));
    p.workspace_bytes = p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedF64&>(*args.prepared);
    const int64_t items = count(args.outputs[0].dims) == 0 ? 0 : p.batches.count() * p.panels;
    args.team.for_ranges(items, 1, [&](int64_t begin, int64_t end) {
      auto* const panel =
          reinterpret_cast<double*>(part_of(args.team, args.workspace, p.part_bytes));
      for (int64_t item = begin; item < end; ++item) {
        const int64_t batch = item / p.panels;
        p.batches.for_elements(batch, batch + 1, [&](const auto& at) {
          multiply(p, args, at[0], at[1], at[2], item % p.panels * kPanel, panel);
        });
      }
    });
  }

 private:
  // All rows by the panel of columns from `first` on.
  void multiply(const PreparedF64& p, const LaunchArgs& args, int64_t a_at, int64_t b_at,
                int64_t y_at, int64_t first, double* panel) const {
    const auto* const a = args.inputs[0].as<const double>() + a_at;
    const auto* const b = args.inputs[1].as<const double>() + b_at + first * p.b_column;
    auto* const y = args.outputs[0].as<double>() + y_at + first * p.y_column;
    const int64_t columns = std::min(kPanel, p.columns - first);
    for (int64_t k = 0; k < p.depth; ++k) {
      double* const row = panel + k * kPanel;
      for (int64_t i = 0; i < columns; ++i) row[i] = b[k * p.b_k + i * p.b_column];
      std::fill(row + columns, row + kPanel, 0.0);
    }
    double* const sums = panel + p.depth * kPanel;
    for (int64_t begin = 0; begin < p.rows; begin += F64Tile::kRows) {
      const int rows = static_cast<int>(std::min<int64_t>(F64Tile::kRows, p.rows - begin));
      tile_.run(a + begin * p.a_row, p.a_row, p.a_k, rows, panel, p.depth, sums);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < columns; ++i)
          y[(begin + row) * p.y_row + i * p.y_column] = sums[row * kPanel + i];
    }
  }

  bool transpose_a_, transpose_b_;
  F64Tile tile_;
};

KernelResult make_f64(const MatMul& op, const Request& request) {
  if (request.inputs[0].type.dtype != DataType::kF64) return refuse("only f64");
  if (request.outputs.size() != 1) return refuse("several outputs");
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) return refuse("an epilogue");
  return std::make_unique<F64MatMul>(op, isa_of(request.device));
}

constexpr KernelEntry kF64MatmulEntries[] = {
    entry<MatMul, make_f64>("cpu.matmul.f64"),
};

}  // namespace

std::span<const KernelEntry> f64_matmul_entries() { return kF64MatmulEntries; }

}  // namespace anneal::cpu
