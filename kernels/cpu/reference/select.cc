// NonZero and Unique: how much they select, only the values tell.
#include <algorithm>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// Calls f(coordinates) for each element of this size whose bits are not 0, in row-major order.
template <class Bits, class F>
void for_bits(const TensorView& x, F f) {
  auto counted = static_cast<Bits>(~Bits{0});
  if (is_float(x.dtype)) counted = static_cast<Bits>(counted >> 1);  // -0 is 0
  const auto* const data = reinterpret_cast<const Bits*>(x.data);
  Dims at = Dims::filled(x.dims.rank(), 0);
  const Walk<1> walk(x.dims, {x.strides});
  walk.for_elements([&](const auto& offset) {
    if ((data[offset[0]] & counted) != 0) f(static_cast<const Dims&>(at));
    advance(at, x.dims);
  });
}

// The same for each element that is not 0.
template <class F>
void for_nonzero(const TensorView& x, F f) {
  switch (size_of(x.dtype)) {
    case 1:
      return for_bits<uint8_t>(x, f);
    case 2:
      return for_bits<uint16_t>(x, f);
    case 4:
      return for_bits<uint32_t>(x, f);
    default:
      return for_bits<uint64_t>(x, f);
  }
}

std::unique_ptr<DataDependentDims> find_nonzero(const NonZero&, std::span<const TensorView> inputs,
                                                ThreadTeam&) {
  int64_t count = 0;
  for_nonzero(inputs[0], [&](const Dims&) { ++count; });
  auto found = std::make_unique<DataDependentDims>();
  found->dims = {Dims{inputs[0].dims.rank(), count}};
  return found;
}

void nonzero(const NonZero&, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  auto* to = y.as<int64_t>();
  int64_t column = 0;
  for_nonzero(args.inputs[0], [&](const Dims& at) {
    for (int axis = 0; axis < at.rank(); ++axis)
      to[axis * y.strides[0] + column * y.strides[1]] = at[axis];
    ++column;
  });
}

struct Groups final : DataDependentDims {
  std::vector<int64_t> first, counts;  // by group, in the order of the output
  std::vector<int64_t> group;          // of each slice
};

// Consecutive slices of `width` elements; NaN is equal to itself and above all else.
template <class T>
bool slice_less(const T* a, const T* b, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    if (a[i] < b[i] || (is_nan(b[i]) && !is_nan(a[i]))) return true;
    if (b[i] < a[i] || (is_nan(a[i]) && !is_nan(b[i]))) return false;
  }
  return false;
}

// Groups in the order in which their first slices lie, instead of the order of their values.
void order_by_place(Groups& groups) {
  std::vector<size_t> met(groups.first.size());
  std::vector<int64_t> place(groups.first.size());
  std::iota(met.begin(), met.end(), 0);
  std::sort(met.begin(), met.end(),
            [&](size_t a, size_t b) { return groups.first[a] < groups.first[b]; });
  const Groups by_value = groups;
  for (size_t i = 0; i < met.size(); ++i) {
    groups.first[i] = by_value.first[met[i]];
    groups.counts[i] = by_value.counts[met[i]];
    place[met[i]] = static_cast<int64_t>(i);
  }
  for (int64_t& group : groups.group) group = place[static_cast<size_t>(group)];
}

template <class T>
void group_slices(const std::vector<T>& slices, int64_t count, int64_t width, Groups& groups) {
  const auto slice = [&](int64_t i) { return slices.data() + i * width; };
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return slice_less(slice(a), slice(b), width); });
  groups.group.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || slice_less(slice(order[i - 1]), slice(order[i]), width)) {
      groups.first.push_back(order[i]);
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.group[static_cast<size_t>(order[i])] = static_cast<int64_t>(groups.first.size()) - 1;
  }
}

// As few types as hold all numbers of an element type: sorting is code of its own for each.
template <class T>
using Compared =
    std::conditional_t<std::is_floating_point_v<T>, T,
                       std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>>;

std::unique_ptr<DataDependentDims> find_unique(const Unique& op, std::span<const TensorView> inputs,
                                               ThreadTeam&) {
  // Slices are the positions of the first axis here.
  TensorView x = inputs[0];
  if (!op.flatten) {
    Dims dims{x.dims[static_cast<int>(op.axis)]}, strides{x.strides[static_cast<int>(op.axis)]};
    for (int axis = 0; axis < x.dims.rank(); ++axis) {
      if (axis == op.axis) continue;
      dims.push_back(x.dims[axis]);
      strides.push_back(x.strides[axis]);
    }
    x.dims = dims;
    x.strides = strides;
  }
  const int64_t total = count(x.dims), slices = op.flatten ? total : x.dims[0];
  auto groups = std::make_unique<Groups>();
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Number = Compared<typename E::Acc>;
    std::vector<Number> elements;
    elements.reserve(static_cast<size_t>(total));
    const Walk<1> walk(x.dims, {x.strides});
    walk.for_elements([&](const auto& offset) {
      elements.push_back(static_cast<Number>(E::load(x.data, offset[0])));
    });
    group_slices(elements, slices, slices == 0 ? 0 : total / slices, *groups);
  });
  if (!op.sorted) order_by_place(*groups);
  const Dims count{static_cast<int64_t>(groups->first.size())};
  Dims distinct = count;
  if (!op.flatten) {
    distinct = inputs[0].dims;
    distinct[static_cast<int>(op.axis)] = count[0];
  }
  groups->dims = {distinct, count, Dims{slices}, count};
  return groups;
}

void unique(const Unique& op, const ReferenceArgs& args) {
  const auto& groups = static_cast<const Groups&>(*args.found);
  const TensorView &x = args.inputs[0], &y = args.results[0];
  for (size_t i = 0; i < groups.first.size(); ++i) {
    const auto to = static_cast<int64_t>(i);
    if (op.flatten) {
      copy_element(x, dot(coordinates(x.dims, groups.first[i]), x.strides), y, to * y.strides[0]);
    } else {
      const int axis = static_cast<int>(op.axis);
      copy_elements(at(x, axis, groups.first[i]), at(y, axis, to));
    }
  }
  const auto store = [](const std::vector<int64_t>& list, const TensorView& to) {
    for (size_t i = 0; i < list.size(); ++i)
      to.as<int64_t>()[static_cast<int64_t>(i) * to.strides[0]] = list[i];
  };
  store(groups.first, args.results[1]);
  store(groups.group, args.results[2]);
  store(groups.counts, args.results[3]);
}

constexpr KernelEntry kSelectEntries[] = {
    finding_reference<NonZero, find_nonzero, nonzero>("cpu.nonzero.reference"),
    finding_reference<Unique, find_unique, unique>("cpu.unique.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_select_entries() { return kSelectEntries; }

}  // namespace anneal::cpu
