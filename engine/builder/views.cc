#include "anneal/engine/builder/views.h"

#include <algorithm>

#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

using Integers = std::vector<int64_t>;

std::optional<Integers> known_integers(const Graph& graph, ValueId id) {
  const auto& elements = graph.value(id).fact.elements;
  if (!elements) return std::nullopt;
  Integers integers;
  for (const Size size : *elements) {
    if (!size.known()) return std::nullopt;
    integers.push_back(size.value());
  }
  return integers;
}

// Row-major, except for the strides of axes of size 1, which are never used.
bool is_row_major(const Shape& shape, const Shape& strides, SizeTable& sizes) {
  const Shape row_major = row_major_strides(shape, sizes);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != Size(1) && strides[axis] != row_major[axis]) return false;
  return true;
}

// Where the counts of elements are only taken to be equal, a kernel compares them.
std::optional<ViewOf> view_of_reshape(const Graph& graph, const Layer& layer,
                                      const Shape& input_strides) {
  const auto strides = reshaped_strides(graph.value(layer.inputs[0]).type().shape, input_strides,
                                        graph.value(layer.outputs[0]).type().shape, graph.sizes());
  if (!strides) return std::nullopt;
  return ViewOf{*strides, 0};
}

// A transpose that leaves the order of the axes longer than 1 alone is a reshape.
bool moves_axes(const Shape& from, const Transpose& op) {
  int64_t last = -1;
  for (const int64_t axis : op.permutation) {
    if (from[static_cast<int>(axis)] == Size(1)) continue;
    if (axis < last) return true;
    last = axis;
  }
  return false;
}

std::optional<ViewOf> view_of_transpose(const Graph& graph, const Layer& layer, const Transpose& op,
                                        const Shape& input_strides, Moved moved) {
  const Shape& from = graph.value(layer.inputs[0]).type().shape;
  const bool moves = moves_axes(from, op);
  if (moves && moved == Moved::kNeedsKernel) return std::nullopt;
  // Dense input stays dense, but for strides of axes of size 1, which are put in order.
  if (!moves && is_row_major(from, input_strides, graph.sizes()))
    return ViewOf{row_major_strides(graph.value(layer.outputs[0]).type().shape, graph.sizes()), 0};
  Shape strides;
  for (const int64_t axis : op.permutation)
    strides.push_back(input_strides[static_cast<int>(axis)]);
  return ViewOf{strides, 0};
}

// The limit for a view: strides stay numbers of 64 bits.
constexpr int64_t kLongestStep = int64_t{1} << 31;

std::optional<ViewOf> view_of_slice(const Graph& graph, const Layer& layer,
                                    const Shape& input_strides) {
  const Shape& from = graph.value(layer.inputs[0]).type().shape;
  const auto starts = known_integers(graph, layer.inputs[1]);
  const auto axes = known_integers(graph, layer.inputs[3]);
  const auto steps = known_integers(graph, layer.inputs[4]);
  if (!starts || !axes || !steps) return std::nullopt;
  SizeTable& sizes = graph.sizes();
  ViewOf view{input_strides, 0};
  for (size_t i = 0; i < axes->size(); ++i) {
    const auto axis = static_cast<int>((*axes)[i] < 0 ? (*axes)[i] + from.rank() : (*axes)[i]);
    int64_t start = (*starts)[i];
    if ((*steps)[i] < 1) return std::nullopt;
    if (from[axis].known()) {
      const int64_t size = from[axis].value();
      start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
    } else if (start < 0 || start > sizes.range(from[axis]).min) {
      return std::nullopt;
    }
    view.offset = sizes.add(view.offset, sizes.mul(start, input_strides[axis]));
    // The stride of an axis with one element is never used, whatever its length.
    if (graph.value(layer.outputs[0]).type().shape[axis] == Size(1)) continue;
    if ((*steps)[i] > kLongestStep) return std::nullopt;
    view.strides[axis] = sizes.mul((*steps)[i], input_strides[axis]);
  }
  return view;
}

bool has_no_elements(const Graph& graph, const Layer& layer) {
  for (const Size size : graph.value(layer.outputs[0]).type().shape)
    if (size == Size(0)) return true;
  return false;
}

// Where symbols are in them: whether it is a part of the other.
bool is_less(Size a, Size b, SizeTable& sizes) {
  if (a.known() && b.known()) return a.value() < b.value();
  if (a == Size(0)) return false;
  const Size times = sizes.floor_div(b, a);
  return times != Size(1) && !times.is_unknown() && sizes.mul(times, a) == b;
}

// Axes that are not of size 1, outermost first.
std::vector<int> long_axes(const Shape& shape) {
  std::vector<int> axes;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != Size(1)) axes.push_back(axis);
  return axes;
}

}  // namespace

bool is_view_op(const Op& op) { return *traits_of(op).view == ViewRule::kOfInput; }

std::optional<Shape> reshaped_strides(const Shape& from, const Shape& strides, const Shape& to,
                                      SizeTable& sizes) {
  if (product(from, sizes) != product(to, sizes)) return std::nullopt;
  if (is_row_major(from, strides, sizes)) return row_major_strides(to, sizes);
  // Groups of axes of both shapes that hold the same elements, from the innermost outwards.
  const std::vector<int> ours = long_axes(from), theirs = long_axes(to);
  Shape result = Shape::filled(to.rank(), Size(1));
  auto i = ours.rbegin();
  auto j = theirs.rbegin();
  while (i != ours.rend() && j != theirs.rend()) {
    const auto first = i;
    auto end = i + 1;
    Size elements = from[*i], wanted = to[*j];
    auto k = j + 1;
    while (elements != wanted) {
      // The smaller side grows; of two that cannot be compared, ours while it can.
      const bool grow_wanted =
          k != theirs.rend() && (end == ours.rend() || is_less(wanted, elements, sizes));
      if (grow_wanted) {
        wanted = sizes.mul(wanted, to[*k++]);
      } else if (end != ours.rend()) {
        if (strides[*end] != sizes.mul(strides[*(end - 1)], from[*(end - 1)])) return std::nullopt;
        elements = sizes.mul(elements, from[*end++]);
      } else {
        return std::nullopt;
      }
    }
    Size stride = strides[*first];
    for (; j != k; ++j) {
      result[*j] = stride;
      stride = sizes.mul(stride, to[*j]);
    }
    i = end;
  }
  if (i != ours.rend() || j != theirs.rend()) return std::nullopt;
  // The stride of an axis of size 1 is never used; it gets the stride of dense memory.
  for (int axis = to.rank() - 2; axis >= 0; --axis)
    if (to[axis] == Size(1)) result[axis] = sizes.mul(result[axis + 1], to[axis + 1]);
  if (to.rank() < 3) return result;
  const Shape channels_last = channels_last_strides(to, sizes);
  const bool is_channels_last = std::all_of(
      theirs.begin(), theirs.end(), [&](int axis) { return result[axis] == channels_last[axis]; });
  return is_channels_last ? channels_last : result;
}

std::optional<ViewOf> view_of(const Graph& graph, const Layer& layer, const Shape& input_strides,
                              Moved moved) {
  if (!layer.epilogues.empty() || has_no_elements(graph, layer)) return std::nullopt;
  return std::visit(
      [&]<class T>(const T& op) -> std::optional<ViewOf> {
        if constexpr (std::is_same_v<T, Reshape>)
          return view_of_reshape(graph, layer, input_strides);
        else if constexpr (std::is_same_v<T, Transpose>)
          return view_of_transpose(graph, layer, op, input_strides, moved);
        else if constexpr (std::is_same_v<T, Slice>)
          return view_of_slice(graph, layer, input_strides);
        else if constexpr (!std::is_same_v<T, std::monostate>)
          static_assert(*op_traits<T>.view != ViewRule::kOfInput, "a case for the op is missing");
        return std::nullopt;
      },
      layer.op);
}

std::optional<ViewOf> operand_within(const Graph& graph, const Layer& layer, size_t operand,
                                     const Shape& output_strides) {
  if (!layer.epilogues.empty() || has_no_elements(graph, layer)) return std::nullopt;
  SizeTable& sizes = graph.sizes();
  const auto shape_of_input = [&](size_t i) -> const Shape& {
    return graph.value(layer.inputs[i]).type().shape;
  };
  if (const auto* concat = std::get_if<Concat>(&layer.op)) {
    const int axis = static_cast<int>(concat->axis);
    Size before = 0;
    for (size_t i = 0; i < operand; ++i) before = sizes.add(before, shape_of_input(i)[axis]);
    return ViewOf{output_strides, sizes.mul(before, output_strides[axis])};
  }
  if (operand != 0) return std::nullopt;
  if (std::holds_alternative<Reshape>(layer.op)) {
    const auto strides = reshaped_strides(graph.value(layer.outputs[0]).type().shape,
                                          output_strides, shape_of_input(0), sizes);
    if (!strides) return std::nullopt;
    return ViewOf{*strides, 0};
  }
  if (const auto* transpose = std::get_if<Transpose>(&layer.op)) {
    Shape strides = output_strides;
    for (int axis = 0; axis < strides.rank(); ++axis)
      strides[static_cast<int>(transpose->permutation[static_cast<size_t>(axis)])] =
          output_strides[axis];
    return ViewOf{strides, 0};
  }
  return std::nullopt;
}

}  // namespace anneal
