// Inputs of a model that nobody gave, by its graph alone: the same on every machine.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

enum class DrawnSizes : uint8_t { kOptimal, kLargest, kSmallest };
inline constexpr DrawnSizes kAllDrawnSizes[] = {DrawnSizes::kOptimal, DrawnSizes::kLargest,
                                                DrawnSizes::kSmallest};
std::string_view to_string(DrawnSizes sizes);  // "largest"

// The inputs' dims at those sizes. open_size: the largest where a size has no end; 0: the optimal.
// nullopt: these sizes do not go together, or an input is no tensor.
std::optional<std::vector<Dims>> dims_at(const Graph& graph, DrawnSizes sizes, int64_t open_size);

// Floats are normal, or within what the table saw of the input; integers are anything from 0 to the
// end of the tables that they index, both ends included, else from 0 to 1.
std::vector<Tensor> draw_inputs(const Graph& graph, const std::vector<Dims>& dims,
                                const CalibrationTable* ranges, uint64_t seed);

}  // namespace anneal
