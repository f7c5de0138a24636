// DeviceSteps: consecutive steps on a device other than the CPU, put on its stream together.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/run_memory.h"

namespace anneal {

class DeviceSteps {
 public:
  explicit DeviceSteps(RunState& run)  // which must outlive it
      : run_(run), never_recorded_(run.plan.steps.size()) {}

  // Puts steps [begin, end) on their stream by launch(i), or replays their recording. The first run
  // at its shapes is not recorded: its errors name the step that fails. Nor is one that is watched
  // (may_record: false), since a recording is of all these steps.
  void run(size_t begin, size_t end, bool may_record, FunctionRef<void(size_t)> launch);
  // For all steps that were put on streams.
  void wait();
  // The same after a failed run, whose error is told in place of the device's: memory that steps in
  // flight use must not go before they are over.
  void give_up();
  // Recordings hold addresses: those that lie elsewhere now are forgotten.
  void check_addresses(const RunMemory& memory);
  std::span<const std::string> remarks() const { return remarks_; }

 private:
  std::string in_flight_text() const;  // REQUIRES: in_flight_

  RunState& run_;
  std::vector<bool> never_recorded_;  // by step that begins such steps: recording them failed
  std::vector<std::string> remarks_;
  std::optional<std::pair<size_t, size_t>> in_flight_;  // [first, last], not waited for
};

}  // namespace anneal
