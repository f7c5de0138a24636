// ArgReduce, line by line: "cpu.arg_reduce.lines".
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

struct PreparedLines final : PreparedKernel {
  Dims dims, from, to;  // of the lines
  int64_t size = 0, step = 0;
};

template <class T>
int64_t best_of(const ArgReduce& op, const T* x, int64_t size, int64_t step) {
  int64_t best = 0;
  T value = x[0];
  for (int64_t i = 1; i < size; ++i) {
    const T next = x[i * step];
    // Most elements lose this comparison; comparisons with a NaN are false.
    if (op.select_last ? (op.largest ? next < value : next > value)
                       : (op.largest ? next <= value : next >= value))
      continue;
    const bool was_nan = value != value, is_nan = next != next;
    if (was_nan && !(is_nan && op.select_last)) continue;
    value = next;
    best = i;
  }
  return best;
}

class ArgReduceLines final : public Kernel {
 public:
  explicit ArgReduceLines(const ArgReduce& op) : op_(op) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedLines>();
    const TensorView &x = inputs[0], &y = outputs[0];
    const int reduced = static_cast<int>(op_.axis);
    made->size = x.dims[reduced];
    made->step = x.strides[reduced];
    for (int axis = 0, of_y = 0; axis < x.dims.rank(); ++axis) {
      if (axis != reduced) {
        made->dims.push_back(x.dims[axis]);
        made->from.push_back(x.strides[axis]);
        made->to.push_back(y.strides[of_y]);
      }
      if (axis != reduced || op_.keepdims) ++of_y;
    }
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedLines&>(*args.prepared);
    const Walk<2> lines(p.dims, {p.from, p.to});
    if (p.size == 0 && lines.count() > 0)
      fail(ErrorCode::kInvalidArgument,
           "ArgReduce: an empty axis has no largest or smallest element");
    auto* const y = args.outputs[0].as<int64_t>();
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      const T* const x = args.inputs[0].as<const T>();
      args.team.for_ranges(lines.count(), kGrain / (p.size + 1) + 1,
                           [&](int64_t begin, int64_t end) {
                             lines.for_elements(begin, end, [&](const auto& at) {
                               y[at[1]] = best_of(op_, x + at[0], p.size, p.step);
                             });
                           });
    };
    switch (args.inputs[0].dtype) {
      case DataType::kF32:
        return run(float{});
      case DataType::kI8:
        return run(int8_t{});
      case DataType::kU8:
        return run(uint8_t{});
      default:
        return run(int32_t{});
    }
  }

 private:
  ArgReduce op_;
};

KernelResult make_lines(const ArgReduce& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  switch (request.inputs[0].type.dtype) {
    case DataType::kF32:
    case DataType::kI8:
    case DataType::kU8:
    case DataType::kI32:
      return std::make_unique<ArgReduceLines>(op);
    default:
      return refuse("only f32, i32 and 8-bit elements");
  }
}

constexpr KernelEntry kArgReduceEntries[] = {
    entry<ArgReduce, make_lines>("cpu.arg_reduce.lines"),
};

}  // namespace

std::span<const KernelEntry> arg_reduce_entries() { return kArgReduceEntries; }

}  // namespace anneal::cpu
