// The roofline of a run: for each step the least time that the ceilings of the device allow, what
// sets it, and the share that the step reaches.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/measure/profile_table.h"
#include "anneal/cli/model/inspect_text.h"

namespace anneal {

// The limit that sets the least time of a step.
enum class Bound : uint8_t {
  kNotKnown,    // its sizes depend on values, it runs on another device, or there are no ceilings
  kMemory,      // traffic with the memory
  kCache,       // traffic with a cache
  kArithmetic,  // multiplications and additions
  kOverhead     // none of these: it takes longer to start it
};

// In one run of the engine; times are in microseconds.
struct RooflineRow {
  size_t step = 0;  // of the plan
  double runs = 1;  // of the step
  double operations = 0, bytes = 0;
  double weight_time = 0, activation_time = 0;  // of the traffic, at the bandwidth of its level
  double arithmetic_time = 0;
  Bound bound = Bound::kNotKnown;
  std::string bound_text = {};  // "memory", "L2", "int8 arithmetic", "overhead", "-"
  double time = 0;              // measured; 0: not measured

  double traffic_time() const { return weight_time + activation_time; }
  double least_time() const { return std::max(traffic_time(), arithmetic_time); }
};

struct Roofline {
  RooflinePlan plan;
  std::optional<RooflineCeilings> ceilings;  // nullopt: this CPU cannot run the plan
  bool is_measured = false;
  std::vector<RooflineRow> rows;  // one for each step that runs, in the order of the plan

  const RooflineStep& step_of(const RooflineRow& row) const { return plan.steps[row.step]; }
  double time() const;        // of all steps
  double least_time() const;  // likewise
  // The step's part of the measured time, else of the least time.
  double share_of(const RooflineRow& row) const;
};

// Weights come from the fastest level that holds all that a run touches, activations from the
// fastest that holds those of the step. profile: of runs of this plan; null: nothing is measured.
Roofline make_roofline(RooflinePlan plan, std::optional<RooflineCeilings> ceilings,
                       const ProfileTable* profile);

// The ceilings, the steps with the longest first, the sum, and advice.
std::string roofline_text(const Roofline& roofline);
// The same below the target, the profile if there are several plans, and the sizes.
std::string planned_roofline_text(const Roofline& roofline, bool is_one_of_several);
Json roofline_json(const Roofline& roofline);
// Log-log: attained operations per second over operations per byte. REQUIRES: is_measured
std::string roofline_picture(const Roofline& roofline, const std::string& title);

}  // namespace anneal
