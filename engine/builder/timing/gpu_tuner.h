// GpuTuner: chooses the kernels of a plan's GPU by their times.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/timing/candidates.h"
#include "anneal/engine/builder/timing/layer_bench.h"
#include "anneal/engine/builder/timing/timing_cache.h"
#include "anneal/engine/plan.h"

namespace anneal {

struct TimedStep;

struct GpuTunerOptions {
  bool measure = false;  // else only what the cache has times for
  int level = 3;         // most_tactics()
  double seconds = 0;    // no layer is begun after this time; 0: no limit
  KernelOptions kernels = {};
  std::function<void(std::string_view what)> progress = [](std::string_view) {};
};

// Where a plan's kernels are chosen, and where they are timed.
struct GpuPlace {
  const Backend& backend;
  Device& device;          // that the plan is for: a card, or one to build for
  Device* card = nullptr;  // on which kernels run, with code of its own; null: there is none
  std::string why_no_card = {};
};

// By step: microseconds of the kernel that was chosen.
using StepTimes = std::map<std::string, double, std::less<>>;

// Layers of one text are timed once. Their candidates are compiled at once, and timed one after the
// other. Deterministic if the cache has the times.
class GpuTuner {
 public:
  // `machine` outlives this.
  GpuTuner(TimingCache known, GpuTunerOptions options, TimingMachine& machine)
      : known_(std::move(known)), options_(std::move(options)), machine_(machine) {}

  // Gives steps of the plan's first device other kernels, tactics and runners-up, and the plan a
  // decision for each layer that has a choice. The plan's code is then another one. How many steps
  // changed. times: gets those of all steps, also of steps without a choice. Fails as compiling
  // does.
  size_t tune(const EngineFile& file, Plan& plan, const GpuPlace& place,
              StepTimes* times = nullptr);

  const TimingCache& measured() const { return measured_; }  // by this tuner

 private:
  struct Layer;
  // all: also those without a choice.
  std::vector<Layer> layers_of(const EngineFile& file, const Plan& plan, const GpuPlace& place,
                               bool all);
  void list_candidates(Layer& layer, const std::vector<Layer>& layers,
                       const std::map<std::string, size_t, std::less<>>& known,
                       const GpuPlace& place) const;
  TimedCandidate heuristic_of(const TimedStep& step, const GpuPlace& place) const;
  void find_times(Layer& layer, const GpuPlace& place) const;
  void measure(std::vector<Layer>& layers, const GpuPlace& place);
  void measure(Layer& layer, const GpuPlace& place);
  bool choose(Plan& plan, Layer& layer, const GpuPlace& place, StepTimes* times);
  void keep_tactics(const Layer& layer);

  TimingCache known_, measured_;
  GpuTunerOptions options_;
  TimingMachine& machine_;
  std::string timed_machine_ = {};  // Device::machine() of the plan in work
};

}  // namespace anneal
