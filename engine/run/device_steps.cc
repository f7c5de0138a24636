#include "anneal/engine/run/device_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/run/recorded_steps.h"

namespace anneal {
namespace {

// Sets of addresses whose recordings are kept for one set of shapes.
constexpr size_t kMostAddresses = 4;

}  // namespace

void DeviceSteps::run(size_t begin, size_t end, bool may_record, FunctionRef<void(size_t)> launch) {
  const auto put = [&] {
    for (size_t i = begin; i < end; ++i) launch(i);
  };
  in_flight_ = {in_flight_ ? in_flight_->first : begin, end - 1};
  if (!may_record || never_recorded_[begin]) return put();
  RecordedAt& recorded = run_.now->recorded.front();
  forget_stale(recorded);
  std::unique_ptr<Recording>& recording = recorded.recordings[begin];
  if (!recording && !recorded.has_run) return put();
  const std::vector<Step>& steps = run_.plan.steps;
  const auto why_not =
      with_context([&] { return in_flight_text(); },
                   [&] { return play_or_put(run_.stream(steps[begin].device), recording, put); });
  if (!why_not) return;
  never_recorded_[begin] = true;
  remarks_.push_back(
      fmt::format("steps \"{}\" to \"{}\" are launched one by one in every run, which is slower: "
                  "capturing a CUDA graph failed: {}",
                  steps[begin].name, steps[end - 1].name, *why_not));
}

void DeviceSteps::forget_stale(RecordedAt& recorded) const {
  const uint64_t freed = run_.resources.budget->freed();
  if (std::exchange(recorded.freed, freed) == freed) return;
  for (std::unique_ptr<Recording>& each : recorded.recordings) each.reset();
  recorded.has_run = false;
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
  in_flight_.reset();
  for (size_t i = 0; i < run_.host(); ++i) {
    try {
      run_.stream(i).wait();
    } catch (const Error&) {
      // The error that ended the run is reported instead; a device that is lost reports it again.
    }
  }
}

void DeviceSteps::check_addresses(const RunMemory& memory, const PlanPorts& ports) {
  if (run_.host() == 0) return;
  std::vector<RecordedAt>& recorded = run_.now->recorded;
  const size_t slots = run_.slots.size(), count = slots + run_.plan.devices.size();
  const auto address = [&](size_t i) {
    if (i >= slots) return memory.workspace(i - slots);
    return ports.is_page_locked(static_cast<uint32_t>(i)) ? nullptr : run_.slots[i].data;
  };
  const auto are_at = [&](const RecordedAt& at) {
    for (size_t i = 0; i < count; ++i)
      if (at.addresses[i] != address(i)) return false;
    return true;
  };
  auto found = std::ranges::find_if(recorded, are_at);
  if (found == recorded.end()) {
    if (recorded.size() == kMostAddresses) recorded.pop_back();
    RecordedAt at{.recordings = std::vector<std::unique_ptr<Recording>>(run_.plan.steps.size())};
    for (size_t i = 0; i < count; ++i) at.addresses.push_back(address(i));
    found = recorded.insert(recorded.end(), std::move(at));
  }
  std::rotate(recorded.begin(), found, found + 1);
}

void DeviceSteps::set_has_run() {
  if (run_.host() != 0) run_.now->recorded.front().has_run = true;
}

}  // namespace anneal
