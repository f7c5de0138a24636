// The ranges of a graph's values over samples.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/calibration/choose_range.h"
#include "anneal/engine/tune/samples/run_samples.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

struct MeasuredRanges {
  std::map<std::string, TensorRange, std::less<>> tensors;
  std::vector<std::string> warnings;  // tensors that are always 0, or one number, for people
};

// The ranges of values that 8-bit layers would read, by the method, and the extremes of all other
// values that an engine without 8 bits stores. The graph is one that insert_quantize would get.
// Fails with kInvalidArgument if a value that would be quantized is not finite, naming samples and
// tensor, and as building and run_samples() do.
MeasuredRanges measure_ranges(const Graph& graph, const RangeOptions& range,
                              const PassOptions& passes,
                              const std::shared_ptr<const Dataset>& samples,
                              const SampleRunOptions& options,
                              const std::function<void(int64_t done)>& progress);

}  // namespace anneal
