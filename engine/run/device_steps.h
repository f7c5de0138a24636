// DeviceSteps: consecutive steps on a device other than the CPU, put on its stream together.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/run/plan_ports.h"
#include "anneal/engine/run/run_memory.h"

namespace anneal {

class DeviceSteps {
 public:
  explicit DeviceSteps(RunState& run)  // which must outlive it
      : run_(run), never_recorded_(run.plan.steps.size()) {}

  // Puts steps [begin, end) on their stream by launch(i), or replays their recording. The first run
  // at its shapes and addresses is not recorded: its errors name the step that fails. Nor is one
  // that is watched (may_record: false), since a recording is of all these steps.
  void run(size_t begin, size_t end, bool may_record, FunctionRef<void(size_t)> launch);
  // Waits for all steps that were put on streams.
  void wait();
  // As wait(), after a failed run, whose error is reported instead of the device's: memory of steps
  // and copies in flight must stay valid until they are done.
  void give_up();
  // Finds the recordings for the present addresses, but for those of page-locked ports, which no
  // recording holds. Those of few sets of addresses are kept, so that a caller may swap two buffers
  // from run to run.
  void check_addresses(const RunMemory& memory, const PlanPorts& ports);
  void set_has_run();  // at these shapes and addresses
  void add_remark(std::string remark) { remarks_.push_back(std::move(remark)); }
  std::span<const std::string> remarks() const { return remarks_; }

 private:
  // Recordings that hold memory that was freed since they were made.
  void forget_stale(RecordedAt& recorded) const;
  std::string in_flight_text() const;  // REQUIRES: in_flight_

  RunState& run_;
  std::vector<bool> never_recorded_;  // by step that begins such steps: recording them failed
  std::vector<std::string> remarks_;
  std::optional<std::pair<size_t, size_t>> in_flight_;  // [first, last], not waited for
};

}  // namespace anneal
