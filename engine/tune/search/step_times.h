// The time of an engine and of each of its steps: measured if its device is present, else modelled.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/tune/frontier/frontier.h"

namespace anneal {

// Whether engines for the target can be timed here: it is a CPU whose instructions this one has, or
// a GPU that is there.
bool can_be_timed(const std::string& target);

// Milliseconds of one inference, each step of the plan, at the sizes it is optimized for: what its
// kernels must read, write and compute, by figures of the card, or of a core of a CPU with AVX-512.
// The same on every machine; good for comparing steps with each other.
std::vector<double> modelled_step_times(const Plan& plan);

// Milliseconds of one inference, each step of the plan; medians of some runs, those of bodies with
// the step that runs them. Fails as running does.
std::vector<double> measured_step_times(const std::shared_ptr<const Engine>& engine,
                                        const std::vector<SampleTensor>& inputs, int threads);

struct TimedEngine {
  double milliseconds = 0, milliseconds_p99 = 0;  // of one inference
  uint64_t memory_bytes = 0;                      // of one context
};
// Times all engines in turn, repeatedly, so that other work of the machine affects all alike. About
// `seconds` seconds each.
std::vector<TimedEngine> timed_in_turn(std::span<const std::shared_ptr<const Engine>> engines,
                                       const std::vector<SampleTensor>& inputs, int threads,
                                       double seconds);

// The group of each step: that of its layer; for other layers that of their input, or of their
// reader; groups.size() if there is none.
std::vector<size_t> groups_of_steps(const Plan& plan, std::span<const PrecisionGroup> groups);

}  // namespace anneal
