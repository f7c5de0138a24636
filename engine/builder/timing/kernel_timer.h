// The fastest kernel for a layer on this machine: measured, or known from a timing cache.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/replay/kernel_chooser.h"
#include "anneal/engine/builder/timing/kernel_timing.h"
#include "anneal/engine/builder/timing/timing_cache.h"
#include "anneal/engine/builder/timing/timing_text.h"
#include "anneal/engine/plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Times the kernels of a layer. The layer runs on data of its own, its weights out of the cache and
// its other inputs in it, as after the layer before; operands have the plan's strides, and copies
// at the edges do not count. Each kernel that accepts the request takes turns with the others for
// at least three rounds, at most about 30 ms each; its median counts. Candidates exclude the
// reference kernel and, after three rounds, a kernel that takes four times as long as another and
// is not the heuristic's.
class KernelTimer final : public KernelChooser {
 public:
  struct Options {
    bool measure = false;  // else only what `known` has times for
    int threads = 1;       // >= 1
    KernelOptions kernels = {};
    double seconds = 0;  // after which no layer is measured; 0: no limit
  };
  KernelTimer(TimingCache known, const Options& options)
      : known_(std::move(known)), options_(options) {}

  // `chosen` stays unless another kernel takes less than 98 % of its time. The decision is also the
  // reason why there are no times; nullopt if there is no choice.
  std::optional<Decision> choose(const Backend& backend, const Request& request,
                                 const std::string& layer, KernelChoice& chosen) override;

  // Whether the last choose() went by times.
  bool has_chosen_by_times() const { return has_chosen_by_times_; }
  const TimingCache& measured() const { return measured_; }  // by this timer

 private:
  struct Candidate;
  // All that accept the request; `chosen` gives its kernel up to them.
  std::vector<Candidate> candidates(const Backend& backend, Request request,
                                    KernelChoice& chosen) const;
  // Null if there are none and none are to be measured.
  const KernelTimes* times_of(const Request& request, std::vector<Candidate>& candidates);
  static void pack_constants(Request request, std::vector<Candidate>& candidates);
  KernelTimes measure(const Request& request, std::vector<Candidate>& candidates) const;

  TimingCache known_, measured_;
  Options options_;
  bool has_chosen_by_times_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// That CPU kernels are timed with. Fails with kInvalidArgument if this process has fewer.
int timing_threads(const KernelTiming& timing);

}  // namespace anneal
