// The memory that one context holds on all its devices, and the most that it may hold.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "anneal/core/device.h"

namespace anneal {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit) : limit_(limit) {}  // in bytes; 0: no limit
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // staging: memory of the host that the device copies from quickly. The buffer counts until it is
  // destroyed, and must not outlive the budget. Fails as require() does.
  std::unique_ptr<Buffer> allocate(Device& device, size_t bytes, bool staging = false);
  // Fails with kLimit if `more` bytes than are held now exceed the limit.
  void require(size_t more) const;
  size_t held() const { return held_; }
  size_t limit() const { return limit_; }
  // Memory that recordings hold is freed. A later allocation may get its address, and a driver may
  // have kept more of the memory than the address, so a recording from before must not be played.
  void note_freed() { ++freed_; }
  uint64_t freed() const { return freed_; }  // how often

 private:
  class CountedBuffer;
  const size_t limit_;
  std::atomic<size_t> held_ = 0;
  std::atomic<uint64_t> freed_ = 0;
};

}  // namespace anneal
