// RunMemory: the memory of one plan's run besides its ports.
#pragma once
#include <memory>
#include <vector>

#include "anneal/engine/run/memory/held_memory.h"
#include "anneal/engine/run/run_state.h"

namespace anneal {

// Arenas and workspaces by device, data-dependent slots, and memory allocated through it. All of it
// counts against the context's limit.
class RunMemory {
 public:
  explicit RunMemory(RunState& run);  // which must outlive it

  // Arenas and workspaces for these shapes. Fails with kLimit beyond the memory limit,
  // before it allocates, naming the step with most activations.
  void make_room(const BoundShapes& bound);
  // Makes the buffer at least `bytes` large, on a device or the host; its contents are lost. If
  // memory runs out, the run is no longer bound.
  void ensure(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t device);
  void ensure(std::unique_ptr<Buffer>& buffer, size_t bytes) { ensure(buffer, bytes, run_.host()); }
  // On the host, and the first `used` bytes stay. Has room to spare, so that growing step by step
  // costs little.
  void grow(std::unique_ptr<Buffer>& buffer, size_t used, size_t wanted);

  // REQUIRES: make_room(run.now)
  std::byte* arena_address(size_t slot) const;
  std::byte* workspace(size_t device) const { return workspaces_[device]->data(); }
  // Memory of its device for a data-dependent slot, at least `bytes`.
  std::byte* data_dependent(size_t slot, size_t bytes);
  // The workspace of late steps, at least `bytes`. On a device it is one of its own, since
  // recordings of other steps hold the address of theirs.
  std::byte* late_workspace(size_t device, size_t bytes);

  bool has_red_zones() const { return separate_ != nullptr; }
  void check_red_zones(size_t begin, size_t end);  // after steps [begin, end)
  void add_to(HeldMemory& held) const;

 private:
  std::unique_ptr<Buffer> allocate(size_t device, size_t bytes);
  // As ensure(), of memory that no recording holds.
  void ensure_late(std::unique_ptr<Buffer>& buffer, size_t bytes, size_t device);
  void check_limit(const BoundShapes& bound) const;

  RunState& run_;
  std::vector<std::unique_ptr<Buffer>> data_dependent_;                         // by slot
  std::vector<std::unique_ptr<Buffer>> arenas_, workspaces_, late_workspaces_;  // by device
  std::unique_ptr<SeparateSlots> separate_;  // instead of arenas on devices other than the CPU
};

}  // namespace anneal
