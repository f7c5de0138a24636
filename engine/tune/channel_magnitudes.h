// How large the channels of values are, measured on samples.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/run_samples.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// Of each channel of a value, over all samples: extremes, and the mean square.
struct Magnitudes {
  std::vector<double> least, most, square;
};

// Runs a graph in f32 for the magnitudes of some of its values.
class ChannelMagnitudes {
 public:
  explicit ChannelMagnitudes(const Graph& graph) : graph_(graph.clone()) {}

  void add(ValueId value, int channel_axis);  // REQUIRES: run() was not called
  // Fails as building and run_samples() do.
  void run(const PassOptions& passes, const std::shared_ptr<const Dataset>& samples,
           const SampleRunOptions& options);
  const Magnitudes& of(ValueId value) const { return magnitudes_.at(value); }

 private:
  struct Outputs {
    std::string least, most, square;
  };
  void take(const ExecutionContext& context);

  Graph graph_;
  std::unordered_map<ValueId, Outputs> outputs_;
  std::unordered_map<ValueId, Magnitudes> magnitudes_;
};

}  // namespace anneal
