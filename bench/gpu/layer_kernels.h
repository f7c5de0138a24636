// One layer as the builder would run it on a GPU, and all ways in which our kernels can do it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal::bench {

// A plan and its step that computes the value "y".
struct PlannedLayer {
  EngineFile file;
  size_t step = 0;
  const Plan& plan() const { return file.plans[0]; }
  const Step& planned() const { return plan().steps[step]; }
  // Of inputs, weights and outputs, each counted once.
  double bytes() const;
};
// Fails with kUnsupported if no step on the GPU gives "y".
PlannedLayer plan_layer(const std::string& graph, const std::string& target);

// A kernel with one of its configurations.
struct Candidate {
  std::string kernel,
      config;               // config: "128x128x32, 2x4 warps, 3 stages"; "" if there is no choice
  bool is_planned = false;  // the builder takes it
  std::unique_ptr<Kernel> made;
};
// Of the first kernel that accepts the layer every configuration, of the others the one that they
// choose themselves.
struct Candidates {
  std::vector<Candidate> all;
  std::vector<std::pair<std::string, std::string>> refused;  // kernel, why
};
Candidates candidates_of(const PlannedLayer& layer, Device& device);

}  // namespace anneal::bench
