#include "anneal/engine/run/run_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

RunMemory::RunMemory(RunState& run)
    : run_(run),
      data_dependent_(run.plan.slots.size()),
      arenas_(run.plan.devices.size()),
      workspaces_(run.plan.devices.size()),
      late_workspaces_(run.plan.devices.size()) {
  const RunResources& resources = run.resources;
  if (resources.red_zone && run.host() != 0)
    separate_ = std::make_unique<SeparateSlots>(run.plan, resources.devices, resources.streams,
                                                *resources.separate_weights, *resources.red_zone);
}

std::unique_ptr<Buffer> RunMemory::allocate(size_t index, size_t bytes) {
  const bool staging = run_.host() != 0 && index == run_.host();
  return run_.resources.budget->allocate(run_.device(staging ? 0 : index),
                                         std::max<size_t>(bytes, 1), staging);
}

void RunMemory::ensure(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t index) {
  if (buffer && buffer->size() < bytes) run_.resources.budget->note_freed();
  ensure_late(buffer, bytes, index);
}

void RunMemory::ensure_late(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t index) {
  if (buffer && buffer->size() >= bytes) return;
  BoundShapes* const bound = std::exchange(run_.now, nullptr);  // stays so if memory runs out
  buffer.reset();
  buffer = allocate(index, bytes);
  run_.now = bound;
}

void RunMemory::grow(std::unique_ptr<Buffer>& buffer, size_t used, size_t wanted) {
  if (buffer && buffer->size() >= wanted) return;
  std::unique_ptr<Buffer> larger = allocate(run_.host(), std::max(wanted, used * 2));
  if (used != 0) std::memcpy(larger->data(), buffer->data(), used);
  buffer = std::move(larger);
}

void RunMemory::check_limit(const BoundShapes& bound) const {
  size_t more = separate_ ? separate_->bytes_for(bound.plan) : 0;
  const auto add = [&](const std::unique_ptr<Buffer>& buffer, size_t bytes) {
    const size_t held = buffer ? buffer->size() : 0;
    if (bytes > held) more += bytes - held;  // the smaller buffer goes before
  };
  for (size_t i = 0; i < run_.plan.devices.size(); ++i) {
    if (!separate_ || i == run_.host()) add(arenas_[i], bound.plan.arena_bytes[i]);
    add(workspaces_[i], bound.workspace_bytes[i]);
  }
  run_.resources.budget->require(more);
}

void RunMemory::make_room(const BoundShapes& bound) {
  const auto making_room = [&] {
    return fmt::format("while allocating activations, most for {}",
                       fullest_step(run_.plan, bound.plan));
  };
  with_context(making_room, [&] {
    check_limit(bound);
    if (separate_) {
      run_.resources.budget->note_freed();
      separate_->place(bound.plan);
    }
    for (size_t i = separate_ ? run_.host() : 0; i < arenas_.size(); ++i)
      ensure(arenas_[i], bound.plan.arena_bytes[i], i);
    for (size_t i = 0; i < workspaces_.size(); ++i)
      ensure(workspaces_[i], bound.workspace_bytes[i], i);
  });
}

std::byte* RunMemory::arena_address(size_t slot) const {
  const uint32_t device = run_.plan.slots[slot].device;
  return separate_ && device != run_.host()
             ? separate_->data(slot)
             : arenas_[device]->data() + run_.now->plan.offsets[slot];
}

std::byte* RunMemory::data_dependent(size_t slot, size_t bytes) {
  const uint32_t owner = run_.plan.slots[slot].base;
  std::unique_ptr<Buffer>& memory = data_dependent_[owner == kNoSlot ? slot : owner];
  if (owner == kNoSlot)
    ensure_late(memory, bytes, run_.plan.slots[slot].device);
  else if (!memory || memory->size() < bytes)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("slot \"{}\" is larger than the one whose memory it has",
                     run_.plan.slots[slot].name));
  return memory->data();
}

std::byte* RunMemory::late_workspace(size_t index, size_t bytes) {
  std::unique_ptr<Buffer>& workspace =
      index == run_.host() ? workspaces_[index] : late_workspaces_[index];
  // Steps in flight use the smaller one.
  if (workspace && workspace->size() < bytes) run_.stream(index).wait();
  ensure_late(workspace, bytes, index);
  return workspace->data();
}

void RunMemory::check_red_zones(size_t begin, size_t end) {
  const auto doing = [&] {
    const Step& step = run_.plan.steps[begin];
    return end - begin == 1 ? fmt::format("after step \"{}\" ({})", step.name, to_string(step.op))
                            : std::string("after the run (synchronous steps show which step)");
  };
  with_context(doing, [&] { separate_->check(); });
}

void RunMemory::add_to(HeldMemory& held) const {
  const auto size = [](const std::unique_ptr<Buffer>& buffer) {
    return buffer ? buffer->size() : 0;
  };
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const size_t workspaces = size(workspaces_[i]) + size(late_workspaces_[i]);
    held.arenas += size(arenas_[i]);
    held.workspaces += workspaces;
    if (i == run_.host()) continue;
    held.gpu_arenas += size(arenas_[i]);
    held.gpu_workspaces += workspaces;
  }
  if (separate_) {
    held.arenas += separate_->bytes();
    held.gpu_arenas += separate_->bytes();
  }
  for (size_t slot = 0; slot < data_dependent_.size(); ++slot) {
    held.late += size(data_dependent_[slot]);
    if (run_.plan.slots[slot].device != run_.host()) held.gpu_late += size(data_dependent_[slot]);
  }
}

}  // namespace anneal
