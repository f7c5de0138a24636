#include "anneal/engine/build/views.h"

#include <algorithm>

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

// Row-major, but for the strides of axes of size 1, which nobody takes a step along.
bool is_row_major(const Shape& shape, const Shape& strides, SizeTable& sizes) {
  const Shape row_major = sizes.row_major_strides(shape);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != Size(1) && strides[axis] != row_major[axis]) return false;
  return true;
}

// Where the counts of elements are only taken to be equal, a kernel compares them.
std::optional<ViewOf> view_of_reshape(const Graph& graph, const Layer& layer,
                                      const Shape& input_strides) {
  SizeTable& sizes = graph.sizes();
  const Shape& from = graph.value(layer.inputs[0]).type().shape;
  const Shape& to = graph.value(layer.outputs[0]).type().shape;
  if (!is_row_major(from, input_strides, sizes) || sizes.product(from) != sizes.product(to))
    return std::nullopt;
  return ViewOf{sizes.row_major_strides(to), 0};
}

// A transpose that leaves the order of the axes longer than 1 alone is a reshape.
std::optional<ViewOf> view_of_transpose(const Graph& graph, const Layer& layer, const Transpose& op,
                                        const Shape& input_strides) {
  const Shape& from = graph.value(layer.inputs[0]).type().shape;
  int64_t last = -1;
  Shape strides;
  for (const int64_t axis : op.permutation) {
    strides.push_back(input_strides[static_cast<int>(axis)]);
    if (from[static_cast<int>(axis)] == Size(1)) continue;
    if (axis < last) return std::nullopt;
    last = axis;
  }
  // Dense input stays dense, but for strides of axes of size 1, which are put in order.
  if (is_row_major(from, input_strides, graph.sizes()))
    strides = graph.sizes().row_major_strides(graph.value(layer.outputs[0]).type().shape);
  return ViewOf{strides, 0};
}

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
    view.strides[axis] = sizes.mul((*steps)[i], input_strides[axis]);
  }
  return view;
}

}  // namespace

std::optional<ViewOf> view_of(const Graph& graph, const Layer& layer, const Shape& input_strides) {
  if (!layer.epilogues.empty()) return std::nullopt;
  for (const Size size : graph.value(layer.outputs[0]).type().shape)
    if (size == Size(0)) return std::nullopt;
  if (std::holds_alternative<Reshape>(layer.op))
    return view_of_reshape(graph, layer, input_strides);
  if (const auto* transpose = std::get_if<Transpose>(&layer.op))
    return view_of_transpose(graph, layer, *transpose, input_strides);
  if (std::holds_alternative<Slice>(layer.op)) return view_of_slice(graph, layer, input_strides);
  return std::nullopt;
}

}  // namespace anneal
