// Gathers, scatters and decision trees. Every index is checked: one out of range ends the run.
#include <fmt/format.h>

#include "anneal/graph/program/program.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// The index at an offset, counted from the front.
int64_t index_at(const TensorView& indices, int64_t offset, int64_t size) {
  const int64_t index = load_integer(indices, offset);
  if (index < -size || index >= size)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("index {} is out of range for {} elements", index, size));
  return index < 0 ? index + size : index;
}

// The axes [begin, end) alone.
TensorView with_axes(TensorView view, int begin, int end) {
  view.dims = part(view.dims, begin, end);
  view.strides = part(view.strides, begin, end);
  return view;
}

// y = x[..., indices, ...]: for each index, one position of x's axis is copied.
void gather(const Gather& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.results[0];
  const int axis = static_cast<int>(op.axis), after = axis + indices.dims.rank();
  if (count(y.dims) == 0) return;
  TensorView place = y;
  place.dims = part(y.dims, 0, axis);
  place.strides = part(y.strides, 0, axis);
  for (int i = after; i < y.dims.rank(); ++i) {
    place.dims.push_back(y.dims[i]);
    place.strides.push_back(y.strides[i]);
  }
  const Walk<2> walk(indices.dims, {indices.strides, part(y.strides, axis, after)});
  args.team.for_ranges(walk.count(), kGrain / (count(place.dims) + 1) + 1,
                       [&](int64_t begin, int64_t end) {
                         walk.for_elements(begin, end, [&](const auto& offset) {
                           const int64_t index = index_at(indices, offset[0], x.dims[axis]);
                           copy_elements(at(x, axis, index), with_offset(place, offset[1]));
                         });
                       });
}

void gather_elements(const GatherElements& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.results[0];
  const int axis = static_cast<int>(op.axis);
  Dims others = x.strides;
  others[axis] = 0;
  const Walk<3> walk(y.dims, {indices.strides, y.strides, others});
  args.team.for_ranges(walk.count(), kGrain, [&](int64_t begin, int64_t end) {
    walk.for_elements(begin, end, [&](const auto& offset) {
      const int64_t index = index_at(indices, offset[0], x.dims[axis]);
      copy_element(x, offset[2] + index * x.strides[axis], y, offset[1]);
    });
  });
}

// The offset in x that the tuple of indices at `offset` stands for, its first element being for
// axis `first`.
int64_t tuple_offset(const TensorView& indices, int64_t offset, const TensorView& x, int first) {
  const int last = indices.dims.rank() - 1;
  int64_t result = 0;
  for (int64_t i = 0; i < indices.dims[last]; ++i) {
    const int axis = first + static_cast<int>(i);
    const int64_t at = offset + i * indices.strides[last];
    result += index_at(indices, at, x.dims[axis]) * x.strides[axis];
  }
  return result;
}

// Tuples of indices choose a slice of x each; the first batch_dims axes of x and indices go
// together.
void gather_nd(const GatherND& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.results[0];
  if (count(y.dims) == 0) return;
  const int batch = static_cast<int>(op.batch_dims), tuples = indices.dims.rank() - 1;
  const int taken = batch + static_cast<int>(indices.dims[tuples]);
  Dims batch_strides = Dims::filled(tuples, 0);
  for (int axis = 0; axis < batch; ++axis) batch_strides[axis] = x.strides[axis];
  const TensorView slice = with_axes(x, taken, x.dims.rank());
  const TensorView place = with_axes(y, tuples, y.dims.rank());
  const Walk<3> walk(part(indices.dims, 0, tuples),
                     {part(indices.strides, 0, tuples), part(y.strides, 0, tuples), batch_strides});
  args.team.for_ranges(walk.count(), kGrain / (count(place.dims) + 1) + 1,
                       [&](int64_t begin, int64_t end) {
                         walk.for_elements(begin, end, [&](const auto& at) {
                           const int64_t from = at[2] + tuple_offset(indices, at[0], x, batch);
                           copy_elements(with_offset(slice, from), with_offset(place, at[1]));
                         });
                       });
}

template <class Acc>
Acc reduced(ScatterReduction reduction, Acc old, Acc update) {
  if constexpr (std::is_same_v<Acc, bool>) {
    const bool all = reduction == ScatterReduction::kMul || reduction == ScatterReduction::kMin;
    return reduction == ScatterReduction::kNone ? update : all ? old && update : old || update;
  } else {
    using Sum = std::conditional_t<std::is_floating_point_v<Acc>, Acc, uint64_t>;
    const auto a = widen<Sum>(old), b = widen<Sum>(update);
    switch (reduction) {
      case ScatterReduction::kNone:
        return update;
      case ScatterReduction::kAdd:
        return static_cast<Acc>(a + b);
      case ScatterReduction::kMul:
        return static_cast<Acc>(a * b);
      case ScatterReduction::kMax:
        return update > old || is_nan(update) ? update : old;
      case ScatterReduction::kMin:
        return update < old || is_nan(update) ? update : old;
    }
    return update;
  }
}

// target = reduction(target, updates), element by element. Floats add and multiply in f32 and are
// rounded to the target's type each time.
void update_elements(ScatterReduction reduction, const TensorView& updates,
                     const TensorView& target) {
  const Walk<2> walk(updates.dims, {updates.strides, target.strides});
  visit_dtype(updates.dtype, [&]<class E>(E) {
    const ResultElements<typename E::Acc> out(target);
    walk.for_elements([&](const auto& at) {
      out.put(at[1], reduced(reduction, out.get(at[1]), E::load(updates.data, at[0])));
    });
  });
}

// Updates of the same element happen in row-major order of the indices.
void scatter_elements(const ScatterElements& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.results[0];
  const TensorView& updates = args.inputs[2];
  const int axis = static_cast<int>(op.axis);
  if (x.data != y.data) copy_elements(x, y, args.team);
  Dims others = y.strides;
  others[axis] = 0;
  const Walk<3> walk(indices.dims, {indices.strides, updates.strides, others});
  visit_dtype(updates.dtype, [&]<class E>(E) {
    const ResultElements<typename E::Acc> out(y);
    walk.for_elements([&](const auto& at) {
      const int64_t target = at[2] + index_at(indices, at[0], y.dims[axis]) * y.strides[axis];
      out.put(target, reduced(op.reduction, out.get(target), E::load(updates.data, at[1])));
    });
  });
}

void scatter_nd(const ScatterND& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.results[0];
  const TensorView& updates = args.inputs[2];
  const int tuples = indices.dims.rank() - 1, taken = static_cast<int>(indices.dims[tuples]);
  if (x.data != y.data) copy_elements(x, y, args.team);
  if (count(updates.dims) == 0) return;
  const TensorView slice = with_axes(y, taken, y.dims.rank());
  const TensorView update = with_axes(updates, tuples, updates.dims.rank());
  const Walk<2> walk(part(indices.dims, 0, tuples),
                     {part(indices.strides, 0, tuples), part(updates.strides, 0, tuples)});
  walk.for_elements([&](const auto& at) {
    const int64_t target = tuple_offset(indices, at[0], y, 0);
    update_elements(op.reduction, with_offset(update, at[1]), with_offset(slice, target));
  });
}

// An index of a table of decision trees.
int64_t tree_index(const TensorView& table, int64_t offset, int64_t size) {
  const int64_t index = load_integer(table, offset);
  if (index < 0 || index >= size)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("DecisionTrees: index {} is out of range for {} elements", index, size));
  return index;
}

void decision_trees(const DecisionTrees& op, const ReferenceArgs& args) {
  const auto& [x, features, thresholds, children, roots] =
      std::tie(args.inputs[0], args.inputs[1], args.inputs[2], args.inputs[3], args.inputs[4]);
  const TensorView& y = args.results[0];
  const int64_t nodes = thresholds.dims[0], trees = roots.dims[0];
  const auto number = [](const TensorView& view, int64_t offset) {
    return view.dtype == DataType::kF32 ? double{view.as<float>()[offset]}
                                        : view.as<double>()[offset];
  };
  const auto next = [&](int64_t row, int64_t node) {
    const int64_t feature = tree_index(features, node * features.strides[0], x.dims[1]);
    const bool passes = number(x, row * x.strides[0] + feature * x.strides[1]) <=
                        number(thresholds, node * thresholds.strides[0]);
    return tree_index(children, node * children.strides[0] + passes * children.strides[1], nodes);
  };
  args.team.for_ranges(
      x.dims[0] * trees, kGrain / (op.depth + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i / trees, tree = i % trees;
          int64_t node = tree_index(roots, tree * roots.strides[0], nodes);
          for (int64_t k = 0; k < op.depth && node >= op.leaves; ++k) node = next(row, node);
          y.as<int32_t>()[row * y.strides[0] + tree * y.strides[1]] = static_cast<int32_t>(node);
        }
      });
}

constexpr KernelEntry kGatherEntries[] = {
    reference<Gather, gather>("cpu.gather.reference"),
    reference<DecisionTrees, decision_trees>("cpu.decision_trees.reference"),
    reference<GatherElements, gather_elements>("cpu.gather_elements.reference"),
    reference<GatherND, gather_nd>("cpu.gather_nd.reference"),
    reference<ScatterElements, scatter_elements>("cpu.scatter_elements.reference"),
    reference<ScatterND, scatter_nd>("cpu.scatter_nd.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_gather_entries() { return kGatherEntries; }

}  // namespace anneal::cpu
