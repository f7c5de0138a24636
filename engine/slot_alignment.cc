#include "anneal/engine/slot_alignment.h"

#include "anneal/engine/memory_planner.h"

namespace anneal {
namespace {

uint32_t one_alignment(const Plan& plan, uint32_t index) {
  if (index == kNoSlot) return 0;
  const Slot& slot = plan.slots[index];
  const Slot& base = slot.storage == Storage::kView ? plan.slots[slot.base] : slot;
  const bool is_port = base.storage == Storage::kInput || base.storage == Storage::kOutput;
  if (is_port && base.device + size_t{1} >= plan.devices.size()) return 0;
  uint32_t alignment = kArenaAlignment;  // devices place weights further apart
  if (slot.storage != Storage::kView) return alignment;
  if (!slot.base_offset.known()) return 0;
  const uint64_t bytes = static_cast<uint64_t>(slot.base_offset.value()) * size_of(slot.type.dtype);
  while (bytes % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace

std::vector<uint32_t> alignments_of(const Plan& plan, std::span<const uint32_t> slots) {
  std::vector<uint32_t> alignments;
  for (const uint32_t slot : slots) alignments.push_back(one_alignment(plan, slot));
  return alignments;
}

}  // namespace anneal
