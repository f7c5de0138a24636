// Ops that move elements or say where they are. Most are a copy between two views, one of which is
// taken apart by its strides.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/pad.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// Where x and y are dense, the copy is one of flat memory.
void reshape(const Reshape&, const ReferenceArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.results[0];
  const int64_t elements = count(y.dims);
  if (count(x.dims) != elements)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("Reshape of {} to {} changes the number of elements", to_string(x.dims),
                     to_string(y.dims)));
  if (is_row_major(x) && is_row_major(y)) {
    copy_elements(row_major_view(x.dtype, {elements}, x.data),
                  row_major_view(y.dtype, {elements}, y.data), args.team);
    return;
  }
  args.team.for_ranges(elements, kGrain, [&](int64_t begin, int64_t end) {
    Dims from = coordinates(x.dims, begin), to = coordinates(y.dims, begin);
    for (int64_t i = begin; i < end; ++i, advance(from, x.dims), advance(to, y.dims))
      copy_element(x, dot(from, x.strides), y, dot(to, y.strides));
  });
}

void transpose(const Transpose& op, const ReferenceArgs& args) {
  TensorView x = args.inputs[0];
  for (int axis = 0; axis < x.dims.rank(); ++axis) {
    const int from = static_cast<int>(op.permutation[axis]);
    x.dims[axis] = args.inputs[0].dims[from];
    x.strides[axis] = args.inputs[0].strides[from];
  }
  copy_elements(x, args.results[0], args.team);
}

void concat(const Concat& op, const ReferenceArgs& args) {
  const int axis = static_cast<int>(op.axis);
  TensorView y = args.results[0];
  if (count(y.dims) == 0) return;
  int64_t end = 0;
  for (const TensorView& x : args.inputs) {
    const int64_t begin = end;
    end += x.dims[axis];
    check(end <= args.results[0].dims[axis], "Concat's inputs fit its output");
    y = args.results[0];
    y.dims[axis] = x.dims[axis];
    copy_elements(x, with_offset(y, begin * y.strides[axis]), args.team);
  }
}

// The ends are in the dims of the output already.
void slice(const Slice&, const ReferenceArgs& args) {
  TensorView x = args.inputs[0];
  const TensorView& y = args.results[0];
  if (count(y.dims) == 0) return;
  const TensorView &starts = args.inputs[1], &axes = args.inputs[3], &steps = args.inputs[4];
  int64_t offset = 0;
  for (int64_t i = 0; i < count(starts.dims); ++i) {
    int64_t axis = load_integer(axes, i * axes.strides[0]);
    if (axis < 0) axis += x.dims.rank();
    check(axis >= 0 && axis < x.dims.rank(), "Slice's axes are axes of x");
    const int a = static_cast<int>(axis);
    const int64_t size = args.inputs[0].dims[a];
    const int64_t step = load_integer(steps, i * steps.strides[0]);
    int64_t start = load_integer(starts, i * starts.strides[0]);
    if (start < 0) start += size;
    start = std::clamp<int64_t>(start, 0, step < 0 ? size - 1 : size);
    const int64_t most = step < 0 ? start : size - 1 - start;  // to go in the step's direction
    const int64_t length = y.dims[a];
    check(step != 0 && (length == 1 || (length - 1) <= (step < 0 ? -(most / step) : most / step)),
          "Slice stays within x");
    offset += start * x.strides[a];
    x.dims[a] = length;
    x.strides[a] = length == 1 ? 0 : x.strides[a] * step;
  }
  copy_elements(with_offset(x, offset), y, args.team);
}

// Negative pads crop before the rest is extended.
void pad(const Pad& op, const ReferenceArgs& args) {
  TensorView x = args.inputs[0];
  const TensorView &pads = args.inputs[1], &y = args.results[0];
  const int rank = x.dims.rank();
  if (count(y.dims) == 0) return;
  Dims begins = x.dims;
  int64_t offset = 0;
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t begin = load_integer(pads, axis * pads.strides[0]);
    const int64_t end = load_integer(pads, (axis + rank) * pads.strides[0]);
    begins[axis] = std::max<int64_t>(begin, 0);
    const int64_t crop_begin = cropped(begin, x.dims[axis]);
    const int64_t crop_end = cropped(end, x.dims[axis] - crop_begin);
    offset += crop_begin * x.strides[axis];
    x.dims[axis] -= crop_begin + crop_end;
  }
  if (count(x.dims) > 0) x = with_offset(x, offset);

  std::byte zero[8] = {};
  const TensorView value = args.has(2) ? args.inputs[2] : TensorView{x.dtype, {}, {}, zero};
  args.team.for_ranges(count(y.dims), kGrain, [&](int64_t first, int64_t last) {
    Dims coordinate = coordinates(y.dims, first);
    for (int64_t i = first; i < last; ++i, advance(coordinate, y.dims)) {
      int64_t source = 0;
      bool inside = true;
      for (int axis = 0; axis < rank && inside; ++axis) {
        const int64_t position =
            padded_position(op.mode, coordinate[axis] - begins[axis], x.dims[axis]);
        inside = position >= 0;
        source += position * x.strides[axis];
      }
      copy_element(inside ? x : value, inside ? source : 0, y, dot(coordinate, y.strides));
    }
  });
}

std::vector<int64_t> numbers_in(const TensorView& vector) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count(vector.dims); ++i)
    numbers.push_back(load_integer(vector, i * (vector.dims.rank() > 0 ? vector.strides[0] : 1)));
  return numbers;
}

void require(const Require&, const ReferenceArgs& args) {
  const TensorView& condition = args.inputs[0];
  const bool holds = count(condition.dims) == 1 && *condition.as<uint8_t>() != 0;
  if (!holds && args.has(2))
    fail(ErrorCode::kInvalidArgument,
         unmet_demand(numbers_in(args.inputs[1]), numbers_in(args.inputs[2])));
  if (!holds)
    fail(ErrorCode::kInvalidArgument,
         "the engine does not hold what the model does with these inputs: it was built for a "
         "condition that is false now. Give other inputs, or build one for their sizes (--shapes)");
  copy_elements(condition, args.results[0], args.team);
}

void expand(const Expand&, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  copy_elements(broadcast(args.inputs[0], y.dims), y, args.team);
}

// One copy of x for each place it is repeated at.
void tile(const Tile&, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  if (count(y.dims) == 0) return;
  Dims repeats = x.dims, strides = y.strides;
  for (int axis = 0; axis < x.dims.rank(); ++axis) {
    repeats[axis] = y.dims[axis] / x.dims[axis];
    strides[axis] = y.strides[axis] * x.dims[axis];
  }
  const Walk<1> places(repeats, {strides});
  const int64_t grain = kGrain / count(x.dims) + 1;
  args.team.for_ranges(places.count(), grain, [&](int64_t begin, int64_t end) {
    places.for_elements(begin, end, [&](const auto& offset) {
      TensorView place = with_offset(y, offset[0]);
      place.dims = x.dims;
      copy_elements(x, place);
    });
  });
}

// The slice at time t of sequence b.
TensorView slice_of(const ReverseSequence& op, const TensorView& view, int64_t b, int64_t t) {
  const auto batch = static_cast<int>(op.batch_axis), time = static_cast<int>(op.time_axis);
  return batch > time ? at(at(view, batch, b), time, t) : at(at(view, time, t), batch, b);
}

void reverse_sequence(const ReverseSequence& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &lengths = args.inputs[1], &y = args.results[0];
  const int64_t steps = x.dims[static_cast<int>(op.time_axis)];
  const int64_t slices = lengths.dims[0] * steps;
  if (count(y.dims) == 0) return;
  args.team.for_ranges(
      slices, kGrain * slices / count(y.dims) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t b = i / steps, t = i % steps;
          const int64_t length = load_integer(lengths, b * lengths.strides[0]);
          if (length < 0 || length > steps)
            fail(ErrorCode::kInvalidArgument,
                 fmt::format("sequence {} has a length of {} of {} steps", b, length, steps));
          copy_elements(slice_of(op, x, b, t < length ? length - 1 - t : t), slice_of(op, y, b, t));
        }
      });
}

void bit_cast(const BitCast& op, const ReferenceArgs& args) {
  TensorView x = args.inputs[0];
  x.dtype = op.dtype;
  copy_elements(x, args.results[0], args.team);
}

void shape_of(const ShapeOf& op, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  for (int64_t axis = op.start; axis < op.end; ++axis)
    y.as<int64_t>()[(axis - op.start) * y.strides[0]] = args.inputs[0].dims[static_cast<int>(axis)];
}

void size_tensor(const SizeTensor& op, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  for (size_t i = 0; i < op.elements.size(); ++i) {
    const int64_t offset = op.scalar ? 0 : static_cast<int64_t>(i) * y.strides[0];
    y.as<int64_t>()[offset] = op.elements[i].value();
  }
}

// Kernels do not get the values of symbols; the run time fills in symbolic sizes itself.
KernelResult make_size_tensor(const SizeTensor& op, const Request& request) {
  for (const Size& element : op.elements)
    if (!element.known()) return refuse("size_tensor: a size that is not known before running");
  return make_reference<SizeTensor, size_tensor, no_scratch>(op, request);
}

// start + i * delta, each rounded once; integers wrap.
void range(const Range&, const ReferenceArgs& args) {
  const TensorView& y = args.results[0];
  visit_dtype(args.inputs[0].dtype, [&]<class E>(E) {
    using Sum = typename E::Sum;
    const auto start = widen<Sum>(E::load(args.inputs[0].data, 0));
    const auto delta = widen<Sum>(E::load(args.inputs[2].data, 0));
    const ResultElements<typename E::Acc> out(y);
    for (int64_t i = 0; i < y.dims[0]; ++i) {
      const Sum value = start + static_cast<Sum>(i) * delta;
      out.put(i * y.strides[0], static_cast<typename E::Acc>(value));
    }
  });
}

constexpr KernelEntry kMovementEntries[] = {
    reference<Reshape, reshape>("cpu.reshape.reference"),
    reference<Transpose, transpose>("cpu.transpose.reference"),
    reference<Concat, concat>("cpu.concat.reference"),
    reference<Slice, slice>("cpu.slice.reference"),
    reference<Pad, pad>("cpu.pad.reference"),
    reference<Expand, expand>("cpu.expand.reference"),
    reference<Require, require>("cpu.require.reference"),
    reference<Tile, tile>("cpu.tile.reference"),
    reference<ReverseSequence, reverse_sequence>("cpu.reverse_sequence.reference"),
    reference<BitCast, bit_cast>("cpu.bit_cast.reference"),
    reference<ShapeOf, shape_of>("cpu.shape_of.reference"),
    entry<SizeTensor, make_size_tensor>("cpu.size_tensor.reference"),
    reference<Range, range>("cpu.range.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_movement_entries() { return kMovementEntries; }

}  // namespace anneal::cpu
