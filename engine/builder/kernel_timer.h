// The fastest kernel for a layer on this machine: measured, or known from a timing cache.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/engine/builder/timing_cache.h"
#include "anneal/engine/plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// The stage of its decisions; the subject is the layer.
inline constexpr std::string_view kTiming = "timing";

// Everything of a layer that times depend on, in one line: the op with its fields, the operands'
// types, sizes and strides, which are constants, and the epilogues. Sizes that are known only when
// the engine is bound are written as their opt value after a '?'. Fails with kInvalidArgument if
// they have none.
std::string timing_text(const Request& request);

// Times the kernels of a layer. The layer runs on data of its own, its weights out of the cache and
// its other inputs in it, as after the layer before; operands have the plan's strides, and copies
// at the edges do not count. Each kernel that accepts the request takes turns with the others for
// at least three rounds, at most about 30 ms each; its median counts. Candidates exclude the
// reference kernel and, after three rounds, a kernel that takes four times as long as another and
// is not the heuristic's.
class KernelTimer {
 public:
  struct Options {
    bool measure = false;  // else only what `known` has times for
    int threads = 1;       // >= 1
    KernelOptions kernels = {};
  };
  KernelTimer(TimingCache known, const Options& options)
      : known_(std::move(known)), options_(options) {}

  // chosen: what the table's order chose. It stays unless another kernel takes less than 98 % of
  // its time. The decision, or the reason why there are no times; nullopt if there is no choice.
  std::optional<Decision> choose(const Backend& backend, const Request& request,
                                 const std::string& layer, KernelChoice& chosen);

  const TimingCache& measured() const { return measured_; }  // by this timer

 private:
  struct Candidate;
  // All that accept the request; `chosen` gives its kernel up to them.
  std::vector<Candidate> candidates(const Backend& backend, Request request,
                                    KernelChoice& chosen) const;
  // Null if there are none and none are to be measured.
  const KernelTimes* times_of(const Request& request, std::vector<Candidate>& candidates);
  KernelTimes measure(const Request& request, std::vector<Candidate>& candidates) const;

  TimingCache known_, measured_;
  Options options_;
};

}  // namespace anneal
