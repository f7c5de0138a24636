// The memory of the emulated device. The host cannot access its addresses: code that reads device
// memory without the driver crashes, as with a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace anneal::cuda {

class EmulatedMemory {
 public:
  struct Allocation {
    uint64_t begin, bytes;
    bool live;
    uint64_t open_begin, open_bytes;  // the part that kernels may access
  };

  // has_limits: whether limit_access() does anything.
  explicit EmulatedMemory(uint64_t limit, bool has_limits = true)
      : limit_(limit), has_limits_(has_limits) {}
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  // 256-byte aligned and no more, filled with 0xff. 0 if that is beyond the limit.
  uint64_t allocate(uint64_t bytes);
  // The address of a live allocation's first byte; false if there is none.
  bool free(uint64_t address);
  // Kernels may access these bytes of the allocation that they are in alone; false if they are in
  // none.
  bool limit_access(uint64_t begin, uint64_t bytes);

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }
  size_t live() const { return live_; }

  static bool is_device(uint64_t address) { return (address & kTag) != 0; }
  static std::byte* host(uint64_t address) { return reinterpret_cast<std::byte*>(address & ~kTag); }
  static uint64_t device(uint64_t host) { return host | kTag; }

  // The live allocation that `address` lies in or just behind; null if there is none.
  const Allocation* find(uint64_t address) const;
  bool holds(uint64_t address, uint64_t bytes) const;  // in one live allocation
  // Where an address is, in words: "8 bytes behind an allocation of 1000 bytes".
  std::string describe(uint64_t address) const;

 private:
  // No address of a program has it, and no pointer with it can be followed.
  static constexpr uint64_t kTag = uint64_t{1} << 62;
  struct Mapping {
    std::byte* begin;
    size_t bytes;
  };
  static Mapping mapping_of(const Allocation& allocation);

  const uint64_t limit_;
  const bool has_limits_;
  uint64_t used_ = 0;
  size_t live_ = 0;
  std::map<uint64_t, Allocation> allocations_;  // by begin; those last freed among them
  std::deque<uint64_t> freed_;                  // oldest first; their addresses are not used again
};

}  // namespace anneal::cuda
