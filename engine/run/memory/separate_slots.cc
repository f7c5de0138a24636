#include "anneal/engine/run/memory/separate_slots.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

// "written by "a", read by "b", "c"", views of it included.
std::string users_text(const Plan& plan, uint32_t base) {
  std::string writers, readers;
  const auto add = [&](std::string& names, const Step& step) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", step.name);
  };
  const auto is_of_base = [&](uint32_t slot) {
    return slot != kNoSlot && base_of(plan, slot) == base;
  };
  for (const Step& step : plan.steps) {
    if (std::ranges::any_of(step.outputs, is_of_base)) add(writers, step);
    if (std::ranges::any_of(step.inputs, is_of_base)) add(readers, step);
  }
  return fmt::format("written by {}, read by {}", writers.empty() ? "no step" : writers,
                     readers.empty() ? "no step" : readers);
}

}  // namespace

SeparateSlots::SeparateSlots(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                             std::span<const std::unique_ptr<DeviceStream>> streams,
                             const SeparateWeights& weights, size_t zone)
    : plan_(plan),
      devices_(devices),
      streams_(streams),
      weights_(weights),
      zone_(zone),
      buffers_(plan.slots.size()),
      zones_(plan.devices.size()) {}

bool SeparateSlots::has_buffer(size_t slot) const {
  return plan_.slots[slot].storage == Storage::kArena &&
         plan_.slots[slot].device + 1u < plan_.devices.size();
}

size_t SeparateSlots::bytes_for(const BoundPlan& bound) const {
  size_t bytes = 0;
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (has_buffer(i)) bytes += bytes_of(bound.slots[i]) + 2 * zone_;
  return bytes;
}

size_t SeparateSlots::bytes() const {
  size_t bytes = 0;
  for (const auto& buffer : buffers_) bytes += buffer ? buffer->size_in_all() : 0;
  return bytes;
}

void SeparateSlots::place(const BoundPlan& bound) {
  const auto fits = [&](size_t i) {
    return buffers_[i] && buffers_[i]->size() == bytes_of(bound.slots[i]);
  };
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (!fits(i)) buffers_[i].reset();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!has_buffer(i) || fits(i)) continue;
    const size_t device = plan_.slots[i].device;
    buffers_[i] = std::make_unique<GuardedBuffer>(*devices_[device], *streams_[device],
                                                  bytes_of(bound.slots[i]), zone_);
  }
}

template <class Visit>
void SeparateSlots::for_each(Visit&& visit) {
  for (uint32_t i = 0; i < plan_.slots.size(); ++i) {
    const Slot& slot = plan_.slots[i];
    if (slot.device + 1u >= plan_.devices.size()) continue;
    if (slot.storage == Storage::kArena) visit(*buffers_[i], slot.device, i);
    if (slot.storage == Storage::kWeight)
      visit(*weights_[slot.device][slot.offset], slot.device, i);
  }
}

void SeparateSlots::check() {
  if (zone_ == 0) return;
  std::vector<size_t> counts(plan_.devices.size());
  for_each([&](const GuardedBuffer&, size_t device, uint32_t) { ++counts[device]; });
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0 && !zones_[i])
      zones_[i] = devices_[i]->allocate_staging(counts[i] * 2 * zone_);
  std::vector<size_t> at(counts.size());
  for_each([&](const GuardedBuffer& buffer, size_t device, uint32_t) {
    buffer.read_zones(*devices_[device], *streams_[device],
                      zones_[device]->data() + at[device]++ * 2 * zone_);
  });
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) streams_[i]->wait();
  std::ranges::fill(at, size_t{0});
  std::string problems;
  for_each([&](GuardedBuffer& buffer, size_t device, uint32_t slot) {
    const auto change =
        GuardedBuffer::change(zones_[device]->data() + at[device]++ * 2 * zone_, zone_);
    if (!change) return;
    buffer.fill_zones(*devices_[device], *streams_[device]);
    problems +=
        fmt::format("{}\"{}\" ({} bytes, {}): {}", problems.empty() ? "" : "; ",
                    plan_.slots[slot].name, buffer.size(), users_text(plan_, slot), *change);
  });
  if (!problems.empty())
    fail(ErrorCode::kInternal,
         fmt::format("a kernel wrote outside of its tensors: red zones were changed of {}",
                     problems));
}

}  // namespace anneal
