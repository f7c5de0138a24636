#include "anneal/engine/run/device_steps.h"

#include <fmt/format.h>

#include "anneal/core/fail.h"
#include "anneal/engine/run/recorded_steps.h"

namespace anneal {

void DeviceSteps::run(size_t begin, size_t end, bool may_record, FunctionRef<void(size_t)> launch) {
  const auto put = [&] {
    for (size_t i = begin; i < end; ++i) launch(i);
  };
  in_flight_ = {in_flight_ ? in_flight_->first : begin, end - 1};
  if (!may_record || never_recorded_[begin]) return put();
  std::unique_ptr<Recording>& recording = run_.now->recordings[begin];
  if (!recording && !run_.now->has_run) return put();
  const std::vector<Step>& steps = run_.plan.steps;
  const auto why_not =
      with_context([&] { return in_flight_text(); },
                   [&] { return play_or_put(run_.stream(steps[begin].device), recording, put); });
  if (!why_not) return;
  never_recorded_[begin] = true;
  remarks_.push_back(fmt::format(
      "steps \"{}\" to \"{}\" are launched one by one in every run, which takes longer: "
      "recording them failed: {}",
      steps[begin].name, steps[end - 1].name, *why_not));
}

std::string DeviceSteps::in_flight_text() const {
  const std::vector<Step>& steps = run_.plan.steps;
  return fmt::format("while running steps \"{}\" to \"{}\"", steps[in_flight_->first].name,
                     steps[in_flight_->second].name);
}

void DeviceSteps::wait() {
  if (!in_flight_) return;
  with_context([&] { return in_flight_text(); },
               [&] {
                 for (size_t i = 0; i < run_.host(); ++i) run_.stream(i).wait();
               });
  in_flight_.reset();
}

void DeviceSteps::give_up() {
  if (!in_flight_) return;
  in_flight_.reset();
  for (size_t i = 0; i < run_.host(); ++i) {
    try {
      run_.stream(i).wait();
    } catch (const Error&) {
      // The error that ended the run is reported instead; a device that is lost reports it again.
    }
  }
}

void DeviceSteps::check_addresses(const RunMemory& memory) {
  if (run_.host() == 0) return;
  std::vector<std::byte*>& recorded = run_.now->recorded_addresses;
  const size_t slots = run_.slots.size(), count = slots + run_.plan.devices.size();
  const auto address = [&](size_t i) {
    return i < slots ? run_.slots[i].data : memory.workspace(i - slots);
  };
  bool are_there = recorded.size() == count;
  for (size_t i = 0; are_there && i < count; ++i) are_there = recorded[i] == address(i);
  if (are_there) return;
  for (auto& recording : run_.now->recordings) recording.reset();
  recorded.clear();
  for (size_t i = 0; i < count; ++i) recorded.push_back(address(i));
}

}  // namespace anneal
