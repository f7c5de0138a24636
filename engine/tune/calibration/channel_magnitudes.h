// Largest magnitudes of the channels of values, measured on samples.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/samples/run_samples.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// For each channel of a value, over all samples: extremes, and the mean square.
struct Magnitudes {
  std::vector<double> least, most, square;
};

// Runs a graph in f32 for the magnitudes of some of its values. Layers may disagree about which
// axis of a value are its channels: each has magnitudes of its own.
class ChannelMagnitudes {
 public:
  explicit ChannelMagnitudes(const Graph& graph) : graph_(graph.clone()) {}

  void add(ValueId value, int channel_axis);  // REQUIRES: run() was not called
  // Fails as building and run_samples() do.
  void run(const PassOptions& passes, const std::shared_ptr<const Dataset>& samples,
           const SampleRunOptions& options);
  // REQUIRES: this was added, and run() called
  const Magnitudes& of(ValueId value, int channel_axis) const {
    return magnitudes_.at({value, channel_axis});
  }

 private:
  using Channels = std::pair<ValueId, int>;  // a value and its axis
  struct Outputs {
    std::string least, most, square;
  };
  void take(const ExecutionContext& context);

  Graph graph_;
  std::map<Channels, Outputs> outputs_;
  std::map<Channels, Magnitudes> magnitudes_;
};

}  // namespace anneal
