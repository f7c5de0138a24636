// Reduce, ArgReduce, Cumulative and TopK. Sums, means and products of floats are in f64, rounded
// once. A maximum or minimum of elements with a NaN among them is NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {
namespace {

using Axes = std::array<bool, kMaxRank>;

int resolved_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail(ErrorCode::kInvalidArgument, "an axis to reduce is not an axis of the tensor");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// The strides of y laid against the axes of x: 0 along reduced ones, which y has as size 1 or not
// at all.
Dims aligned_strides(const TensorView& y, const Axes& reduced, int rank) {
  Dims strides;
  const bool keepdims = y.dims.rank() == rank;
  for (int axis = 0, of_y = 0; axis < rank; ++axis) {
    strides.push_back(reduced[axis] ? 0 : y.strides[of_y]);
    if (!reduced[axis] || keepdims) ++of_y;
  }
  return strides;
}

// The result for no element at all, and how each element changes it.
template <class Acc>
Acc extreme(bool largest) {
  using Limits = std::numeric_limits<Acc>;
  if constexpr (std::is_floating_point_v<Acc>)
    return largest ? -Limits::infinity() : Limits::infinity();
  return largest ? Limits::lowest() : Limits::max();
}
template <class Acc>
bool beats(Acc value, Acc best, bool largest) {
  if (is_nan(best)) return false;
  return is_nan(value) || (largest ? value > best : value < best);
}

// numpy's mean of integers: the wrapped sum, divided by truncation.
template <class Acc, class Sum>
Acc mean(Sum sum, int64_t elements) {
  if constexpr (std::is_floating_point_v<Acc>) {
    return static_cast<Acc>(sum / static_cast<double>(elements));
  } else if constexpr (std::is_signed_v<Acc>) {
    return elements == 0 ? Acc{0}
                         : static_cast<Acc>(static_cast<int64_t>(static_cast<Acc>(sum)) / elements);
  } else {
    return elements == 0
               ? Acc{0}
               : static_cast<Acc>(static_cast<Acc>(sum) / static_cast<uint64_t>(elements));
  }
}

template <class E>
typename E::Acc reduce_group(ReduceKind kind, const Walk<1>& group, const std::byte* x,
                             int64_t base) {
  using Acc = typename E::Acc;
  using Sum = typename E::Sum;
  if (kind == ReduceKind::kMax || kind == ReduceKind::kMin) {
    const bool largest = kind == ReduceKind::kMax;
    Acc best = extreme<Acc>(largest);
    group.for_elements([&](const auto& at) {
      const Acc value = E::load(x, base + at[0]);
      if (beats(value, best, largest)) best = value;
    });
    return best;
  }
  Sum result{kind == ReduceKind::kProd ? Sum{1} : Sum{0}};
  group.for_elements([&](const auto& at) {
    const Sum value = widen<Sum>(E::load(x, base + at[0]));
    result = kind == ReduceKind::kProd ? result * value : result + value;
  });
  return kind == ReduceKind::kMean ? mean<Acc>(result, group.count()) : static_cast<Acc>(result);
}

size_t reduce_scratch(const Reduce& op, std::span<const TensorView> inputs,
                      std::span<const TensorView>) {
  return op.map.empty() ? 0 : mapped_bytes(op.map, mapped_dims(inputs, 2), inputs.size());
}

void reduce(const Reduce& op, const ReferenceArgs& args) {
  const TensorView x = op.map.empty() ? args.inputs[0]
                                      : mapped(op.map, mapped_dims(args.inputs, 2), args.inputs[0],
                                               args.inputs.subspan(2), args.scratch, args.team);
  const TensorView& y = args.results[0];
  const int rank = x.dims.rank();
  const TensorView axes = args.has(1) ? args.inputs[1] : TensorView{};
  Axes reduced{};
  for (int64_t i = 0; args.has(1) && i < count(axes.dims); ++i)
    reduced[resolved_axis(load_integer(axes, i * axes.strides[0]), rank)] = true;
  const auto outer =
      split_axes<2>(x.dims, {x.strides, aligned_strides(y, reduced, rank)}, reduced).kept;
  const auto group = split_axes<1>(x.dims, {x.strides}, reduced).reduced;
  check(outer.count() == count(y.dims), "Reduce's output has the axes that are not reduced");
  const int64_t grain = kGrain / (group.count() + 1) + 1;
  visit_dtype(x.dtype, [&]<class E>(E) {
    const ResultElements<typename E::Acc> out(y);
    args.team.for_ranges(outer.count(), grain, [&](int64_t begin, int64_t end) {
      outer.for_elements(begin, end, [&](const auto& at) {
        out.put(at[1], reduce_group<E>(op.kind, group, x.data, at[0]));
      });
    });
  });
}

// A walk over the lines along one axis, with their offsets in x, y and z (z: y again if there is
// none).
Walk<3> lines(const TensorView& x, int axis, const Dims& y_strides, const Dims& z_strides) {
  Axes reduced{};
  reduced[axis] = true;
  return split_axes<3>(x.dims, {x.strides, y_strides, z_strides}, reduced).kept;
}

void arg_reduce(const ArgReduce& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  const int axis = static_cast<int>(op.axis);
  Axes reduced{};
  reduced[axis] = true;
  const Dims y_strides = aligned_strides(y, reduced, x.dims.rank());
  const auto outer = lines(x, axis, y_strides, y_strides);
  const int64_t size = x.dims[axis], step = x.strides[axis];
  if (size == 0 && outer.count() > 0)
    fail(ErrorCode::kInvalidArgument,
         "ArgReduce: an empty axis has no largest or smallest element");
  visit_dtype(x.dtype, [&]<class E>(E) {
    args.team.for_ranges(outer.count(), kGrain / (size + 1) + 1, [&](int64_t begin, int64_t end) {
      outer.for_elements(begin, end, [&](const auto& at) {
        int64_t best = 0;
        auto best_value = E::load(x.data, at[0]);
        for (int64_t i = 1; i < size; ++i) {
          const auto value = E::load(x.data, at[0] + i * step);
          const bool equal = value == best_value || (is_nan(value) && is_nan(best_value));
          if (!(equal ? op.select_last : beats(value, best_value, op.largest))) continue;
          best = i;
          best_value = value;
        }
        y.as<int64_t>()[at[1]] = best;
      });
    });
  });
}

void cumulative(const Cumulative& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  const int axis = resolved_axis(load_integer(args.inputs[1], 0), x.dims.rank());
  const auto outer = lines(x, axis, y.strides, y.strides);
  const int64_t size = x.dims[axis];
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Sum = typename E::Sum;
    using Acc = typename E::Acc;
    const ResultElements<Acc> out(y);
    args.team.for_ranges(outer.count(), kGrain / (size + 1) + 1, [&](int64_t begin, int64_t end) {
      outer.for_elements(begin, end, [&](const auto& at) {
        Sum total = op.kind == CumulativeKind::kProd ? Sum{1} : Sum{0};
        for (int64_t n = 0; n < size; ++n) {
          const int64_t i = op.reverse ? size - 1 - n : n;
          const Sum value = widen<Sum>(E::load(x.data, at[0] + i * x.strides[axis]));
          const Sum next = op.kind == CumulativeKind::kProd ? total * value : total + value;
          out.put(at[1] + i * y.strides[axis], static_cast<Acc>(op.exclusive ? total : next));
          total = next;
        }
      });
    });
  });
}

size_t top_k_scratch(const TopK& op, std::span<const TensorView> inputs,
                     std::span<const TensorView>) {
  return static_cast<size_t>(inputs[0].dims[static_cast<int>(op.axis)]) * sizeof(int64_t);
}

// The softmax of the elements of a line.
class LineSoftmax {
 public:
  template <class Value>
  LineSoftmax(int64_t size, const Value& value) {
    for (int64_t i = 0; i < size; ++i) most_ = std::max<double>(most_, value(i));
    for (int64_t i = 0; i < size; ++i) sum_ += std::exp(static_cast<double>(value(i)) - most_);
  }
  double operator()(double value, bool log) const {
    const double shifted = value - most_;
    return log ? shifted - std::log(sum_) : std::exp(shifted) / sum_;
  }

 private:
  double most_ = -std::numeric_limits<double>::infinity(), sum_ = 0;
};

// One line after the other, by a sort of its positions; NaN counts as larger than everything.
void top_k(const TopK& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &values = args.results[0], &indices = args.results[1];
  const int axis = static_cast<int>(op.axis);
  const int64_t size = x.dims[axis], k = values.dims[axis], step = x.strides[axis];
  if (k > size) fail(ErrorCode::kInvalidArgument, "TopK: k is more than there are elements");
  const auto outer = lines(x, axis, values.strides, indices.strides);
  auto* order = reinterpret_cast<int64_t*>(args.scratch);
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    const ResultElements<Acc> out(values);
    outer.for_elements([&](const auto& at) {
      const auto value = [&](int64_t i) { return E::load(x.data, at[0] + i * step); };
      const auto before = [&](int64_t i, int64_t j) {
        const auto a = value(i), b = value(j);
        const bool greater = a > b || (is_nan(a) && !is_nan(b));
        const bool less = a < b || (is_nan(b) && !is_nan(a));
        if (greater || less) return op.largest ? greater : less;
        return i < j;
      };
      for (int64_t i = 0; i < size; ++i) order[i] = i;
      std::partial_sort(order, order + k, order + size, before);
      const LineSoftmax softmax(op.of == TopKOf::kValues ? 0 : size, value);
      const bool log = op.of == TopKOf::kLogSoftmax;
      for (int64_t i = 0; i < k; ++i) {
        const Acc picked = value(order[i]);
        out.put(at[1] + i * values.strides[axis],
                op.of == TopKOf::kValues ? picked : static_cast<Acc>(softmax(picked, log)));
        indices.as<int64_t>()[at[2] + i * indices.strides[axis]] = order[i];
      }
    });
  });
}

constexpr KernelEntry kReduceEntries[] = {
    reference<Reduce, reduce, reduce_scratch>("cpu.reduce.reference"),
    reference<ArgReduce, arg_reduce>("cpu.arg_reduce.reference"),
    reference<Cumulative, cumulative>("cpu.cumulative.reference"),
    reference<TopK, top_k, top_k_scratch>("cpu.topk.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_reduce_entries() { return kReduceEntries; }

}  // namespace anneal::cpu
