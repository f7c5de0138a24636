// Which bytes of global memory one launch or copy has read and written.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "anneal/tests/virtual_card/ptx/memory.h"

namespace anneal::ptx {

// Of one allocation, by byte.
class TouchedBytes {
 public:
  explicit TouchedBytes(size_t bytes)
      : bytes_(bytes), pages_((bytes + kPageBytes - 1) / kPageBytes) {}
  size_t bytes() const { return bytes_; }  // of the allocation
  // REQUIRES: the bytes are inside.
  void note(uint64_t at, size_t bytes, bool is_store);
  // A byte that both have, and that one has written.
  std::optional<uint64_t> conflict(const TouchedBytes& other) const;

 private:
  static constexpr size_t kPageBytes = 4096, kWordBytes = 64;
  using Bits = std::array<uint64_t, kPageBytes / kWordBytes>;
  struct Page {
    Bits read{}, written{};
  };
  size_t bytes_;
  std::vector<std::unique_ptr<Page>> pages_;
};

class Touched {
 public:
  void note(const GlobalMemory::Allocation& allocation, uint64_t at, size_t bytes, bool is_store) {
    if (last_ == nullptr || last_address_ != allocation.address) find(allocation);
    last_->note(at, bytes, is_store);
  }
  // By the address of the allocation. Nothing is left.
  std::map<uint64_t, std::shared_ptr<TouchedBytes>> take();

 private:
  void find(const GlobalMemory::Allocation& allocation);

  std::map<uint64_t, std::shared_ptr<TouchedBytes>> all_;
  TouchedBytes* last_ = nullptr;
  uint64_t last_address_ = 0;
};

}  // namespace anneal::ptx
