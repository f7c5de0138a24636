// Cumulative, several lines at once: "cpu.cumulative.lines". As the reference does, it sums and
// multiplies floats in f64 and rounds each result once.
#include <algorithm>
#include <type_traits>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// Their totals stay in registers, and the additions of one line do not wait for those of another.
constexpr int64_t kLinesAtOnce = 8;

struct PreparedCumulative final : PreparedKernel {
  Dims dims, from, to;  // of the lines
  int64_t size = 0, x_step = 0, y_step = 0;
};

struct LineSteps {
  int64_t size;
  int64_t x, y;            // from element to element of a line
  int64_t x_line, y_line;  // from line to line
};

// kAdjacent: both steps from line to line are 1.
template <class T, bool kProducts, bool kAdjacent>
void run_lines(const T* x, T* y, const LineSteps& steps, int64_t lines, bool exclusive) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  const int64_t x_line = kAdjacent ? 1 : steps.x_line, y_line = kAdjacent ? 1 : steps.y_line;
  const auto combined = [](Sum total, T value) {
    return kProducts ? total * static_cast<Sum>(value) : total + static_cast<Sum>(value);
  };
  for (; lines >= kLinesAtOnce; lines -= kLinesAtOnce) {
    Sum totals[kLinesAtOnce];
    std::fill_n(totals, kLinesAtOnce, Sum{kProducts});
    for (int64_t i = 0; i < steps.size; ++i) {
      const auto store = [&] {
#pragma GCC unroll 8
        for (int64_t line = 0; line < kLinesAtOnce; ++line)
          y[i * steps.y + line * y_line] = static_cast<T>(totals[line]);
      };
      if (exclusive) store();
#pragma GCC unroll 8
      for (int64_t line = 0; line < kLinesAtOnce; ++line)
        totals[line] = combined(totals[line], x[i * steps.x + line * x_line]);
      if (!exclusive) store();
    }
    x += kLinesAtOnce * x_line;
    y += kLinesAtOnce * y_line;
  }
  for (; lines > 0; --lines, x += x_line, y += y_line) {
    Sum total = kProducts;
    for (int64_t i = 0; i < steps.size; ++i) {
      const Sum before = total;
      total = combined(before, x[i * steps.x]);
      y[i * steps.y] = static_cast<T>(exclusive ? before : total);
    }
  }
}

class CumulativeLines final : public Kernel {
 public:
  CumulativeLines(const Cumulative& op, int axis) : op_(op), axis_(axis) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedCumulative>();
    const TensorView &x = inputs[0], &y = outputs[0];
    made->size = x.dims[axis_];
    made->x_step = x.strides[axis_];
    made->y_step = y.strides[axis_];
    for (int axis = 0; axis < x.dims.rank(); ++axis) {
      if (axis == axis_) continue;
      made->dims.push_back(x.dims[axis]);
      made->from.push_back(x.strides[axis]);
      made->to.push_back(y.strides[axis]);
    }
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedCumulative&>(*args.prepared);
    if (p.size == 0) return;
    switch (args.outputs[0].dtype) {
      case DataType::kF32:
        return run<float>(p, args);
      case DataType::kI32:
        return run<int32_t>(p, args);
      default:
        return run<int64_t>(p, args);
    }
  }

 private:
  template <class T>
  void run(const PreparedCumulative& p, const LaunchArgs& args) const {
    const Walk<2> lines(p.dims, {p.from, p.to});
    const auto* const x =
        args.inputs[0].as<const T>() + (op_.reverse ? (p.size - 1) * p.x_step : 0);
    auto* const y = args.outputs[0].as<T>() + (op_.reverse ? (p.size - 1) * p.y_step : 0);
    const int64_t sign = op_.reverse ? -1 : 1;
    const LineSteps steps{p.size, sign * p.x_step, sign * p.y_step, lines.step(0), lines.step(1)};
    const bool is_adjacent = steps.x_line == 1 && steps.y_line == 1;
    const auto loop = op_.kind == CumulativeKind::kProd
                          ? (is_adjacent ? run_lines<T, true, true> : run_lines<T, true, false>)
                          : (is_adjacent ? run_lines<T, false, true> : run_lines<T, false, false>);
    args.team.for_ranges(lines.count(), kGrain / (p.size + 1) + 1, [&](int64_t begin, int64_t end) {
      lines.for_runs(begin, end, [&](const auto& at, int64_t count) {
        loop(x + at[0], y + at[1], steps, count, op_.exclusive);
      });
    });
  }

  Cumulative op_;
  int axis_;
};

KernelResult make_cumulative(const Cumulative& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype != DataType::kF32 && dtype != DataType::kI32 && dtype != DataType::kI64)
    return refuse("only f32, i32 and i64");
  const Tensor* const constant = request.inputs[1].constant;
  if (constant == nullptr) return refuse("an axis that is not constant");
  const int64_t axis = load_integer(kernel_view(*constant), 0);
  const int rank = request.inputs[0].type.shape.rank();
  if (axis < -rank || axis >= rank) return refuse("an axis that the input does not have");
  return std::make_unique<CumulativeLines>(op, static_cast<int>(axis < 0 ? axis + rank : axis));
}

constexpr KernelEntry kCumulativeEntries[] = {
    entry<Cumulative, make_cumulative>("cpu.cumulative.lines"),
};

}  // namespace

std::span<const KernelEntry> cumulative_entries() { return kCumulativeEntries; }

}  // namespace anneal::cpu
