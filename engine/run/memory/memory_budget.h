// The memory that one context holds on all its devices, and the most that it may hold.
#pragma once
#include <atomic>
#include <cstddef>
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

 private:
  class CountedBuffer;
  const size_t limit_;
  std::atomic<size_t> held_ = 0;
};

}  // namespace anneal
