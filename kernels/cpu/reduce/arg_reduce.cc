// ArgReduce, line by line: "cpu.arg_reduce.lines". Lines of f32 that lie side by side are compared
// in the lanes of a vector, and so are the elements of a line that follow each other.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/reduce/arg_reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = HWY_LANES(float);

// The smallest one is the largest one of the negated numbers.
V loaded(const float* x, V sign) { return hn::Xor(hn::LoadU(D(), x), sign); }

int64_t best_of_row(const float* x, int64_t n, V sign) {
  const D d;
  const V first = hn::Xor(hn::Set(d, x[0]), sign);
  const int64_t whole = n / kLanes * kLanes;
  const auto rest = hn::FirstN(d, static_cast<size_t>(n - whole));
  V last = first;
  if (whole < n)
    last = hn::IfThenElse(rest, hn::Xor(hn::MaskedLoad(rest, d, x + whole), sign), first);
  V best = last;
  auto is_nan = hn::IsNaN(last);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const V v = loaded(x + i, sign);
    is_nan = hn::Or(is_nan, hn::IsNaN(v));
    best = hn::Max(best, v);
  }
  if (!hn::AllFalse(d, is_nan)) return -1;
  best = hn::MaxOfLanes(d, best);
  for (int64_t i = 0; i < whole; i += kLanes)
    if (const intptr_t at = hn::FindFirstTrue(d, hn::Eq(loaded(x + i, sign), best)); at >= 0)
      return i + at;
  return whole + hn::FindFirstTrue(d, hn::And(rest, hn::Eq(last, best)));
}

template <bool kLast>
void best_of_columns(const float* x, int64_t n, int64_t step, V sign, int32_t* best) {
  const hn::RebindToSigned<D> di;
  V value = loaded(x, sign);
  auto index = hn::Zero(di);
  auto is_nan = hn::IsNaN(value);
  for (int64_t i = 1; i < n; ++i) {
    const V next = loaded(x + i * step, sign);
    const auto is_better = kLast ? hn::Ge(next, value) : hn::Gt(next, value);
    is_nan = hn::Or(is_nan, hn::IsNaN(next));
    value = hn::IfThenElse(is_better, next, value);
    index =
        hn::IfThenElse(hn::RebindMask(di, is_better), hn::Set(di, static_cast<int32_t>(i)), index);
  }
  hn::StoreU(hn::IfThenElse(hn::RebindMask(di, is_nan), hn::Set(di, -1), index), di, best);
}

V sign_of(bool largest) { return hn::Set(D(), largest ? 0.0F : -0.0F); }

}  // namespace

// The first of the best of n numbers that follow each other; negative if one is a NaN.
int64_t best_in_row(const float* x, int64_t n, bool largest) {
  return best_of_row(x, n, sign_of(largest));
}
// Of `lines` lines side by side, likewise. Returns the number of lines done, from the first one on:
// whole vectors. The numbers of a line are `step` apart.
int64_t best_in_columns(const float* x, int64_t n, int64_t step, int64_t lines, bool largest,
                        bool last, int32_t* best) {
  const int64_t whole = lines / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    last ? best_of_columns<true>(x + i, n, step, sign_of(largest), best + i)
         : best_of_columns<false>(x + i, n, step, sign_of(largest), best + i);
  return whole;
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

constexpr int64_t kMostLines = 64;  // side by side, at once

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
  ArgReduceLines(const ArgReduce& op, Isa isa)
      : op_(op),
        in_row_(ANNEAL_BY_ISA(isa, best_in_row)),
        in_columns_(ANNEAL_BY_ISA(isa, best_in_columns)) {}
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
        return args.team.for_ranges(
            lines.count(), kGrain / (p.size + 1) + 1, [&](int64_t begin, int64_t end) {
              lines.for_runs(begin, end, [&](const auto& at, int64_t count) {
                run_floats(p, args.inputs[0].as<const float>() + at[0], lines.step(0), count,
                           y + at[1], lines.step(1));
              });
            });
      case DataType::kI8:
        return run(int8_t{});
      case DataType::kU8:
        return run(uint8_t{});
      default:
        return run(int32_t{});
    }
  }

 private:
  // `count` lines, x_step apart.
  void run_floats(const PreparedLines& p, const float* x, int64_t x_step, int64_t count, int64_t* y,
                  int64_t y_step) const {
    std::array<int32_t, kMostLines> best;
    const bool are_side_by_side = x_step == 1 && p.size <= INT32_MAX;
    for (int64_t line = 0; line < count;) {
      int64_t found = 0;
      if (are_side_by_side)
        found = in_columns_(x + line, p.size, p.step, std::min(count - line, kMostLines),
                            op_.largest, op_.select_last, best.data());
      if (found == 0) {
        const float* const from = x + line * x_step;
        const bool is_row = p.step == 1 && !op_.select_last;
        int64_t at = is_row ? in_row_(from, p.size, op_.largest) : -1;
        if (at < 0) at = best_of(op_, from, p.size, p.step);
        y[line++ * y_step] = at;
      }
      for (int64_t i = 0; i < found; ++i, ++line) {
        const int32_t at = best[static_cast<size_t>(i)];
        y[line * y_step] = at < 0 ? best_of(op_, x + line, p.size, p.step) : at;
      }
    }
  }

  ArgReduce op_;
  int64_t (*in_row_)(const float*, int64_t, bool);
  int64_t (*in_columns_)(const float*, int64_t, int64_t, int64_t, bool, bool, int32_t*);
};

KernelResult make_lines(const ArgReduce& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  switch (request.inputs[0].type.dtype) {
    case DataType::kF32:
    case DataType::kI8:
    case DataType::kU8:
    case DataType::kI32:
      return std::make_unique<ArgReduceLines>(op, isa_of(request.device));
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
#endif
