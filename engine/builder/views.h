// Layers that become views: no kernel runs, because the output is a view of the input, or the input
// is written in the memory of the output.
#pragma once
#include <optional>

#include "anneal/graph/graph.h"

namespace anneal {

// Strides and first element of one value within the memory of another.
struct ViewOf {
  Shape strides;
  Size offset;
};

// Reshape, Transpose or Slice.
bool is_view_op(const Op& op);

// The strides with which memory that holds `from` with `strides` holds `to`, its elements in
// row-major order unmoved; nullopt if they would have to move, or if the counts of elements are not
// provably equal.
std::optional<Shape> reshaped_strides(const Shape& from, const Shape& strides, const Shape& to,
                                      SizeTable& sizes);

// Whether a Transpose that changes the order of axes longer than 1 may be a view.
enum class Moved : uint8_t { kNeedsKernel, kIsView };

// The layer's output within its first input, which has these strides: of Reshape, Transpose, and
// Slice with known starts and positive steps; nullopt if the layer needs a kernel.
std::optional<ViewOf> view_of(const Graph& graph, const Layer& layer, const Shape& input_strides,
                              Moved moved = Moved::kNeedsKernel);

// An input of Concat, Reshape or Transpose within the layer's output, which has these strides, so
// that nothing is left to do once the input is written there; nullopt if there is no such place.
std::optional<ViewOf> operand_within(const Graph& graph, const Layer& layer, size_t operand,
                                     const Shape& output_strides);

}  // namespace anneal
