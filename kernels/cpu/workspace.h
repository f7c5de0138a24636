// Memory of a launch, shared out.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "anneal/core/error.h"

namespace anneal::cpu {

constexpr size_t align_up(size_t bytes, size_t to = 64) { return (bytes + to - 1) / to * to; }

// Equal parts, one for each range of Team::for_ranges that runs at the same time: as many as the
// team has threads. A range holds its part as long as it lives.
class WorkspaceParts {
 public:
  static constexpr int kMost = 1024;

  WorkspaceParts(std::byte* base, size_t part_bytes) : base_(base), part_bytes_(part_bytes) {}

  class Part {
   public:
    explicit Part(WorkspaceParts& parts) : parts_(parts), index_(parts.take()) {}
    ~Part() { parts_.taken_[index_ / 64].fetch_and(~(uint64_t{1} << (index_ % 64))); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    std::byte* data() const { return parts_.base_ + index_ * parts_.part_bytes_; }
    size_t index() const { return index_; }  // below the number of ranges that run at one time

   private:
    WorkspaceParts& parts_;
    size_t index_;
  };

 private:
  // The lowest free one, so that fewer ranges than threads touch less memory.
  size_t take() {
    for (size_t word = 0;; word = (word + 1) % taken_.size()) {
      uint64_t seen = taken_[word].load(std::memory_order_relaxed);
      while (seen != ~uint64_t{0}) {
        const int bit = std::countr_one(seen);
        if (taken_[word].compare_exchange_weak(seen, seen | uint64_t{1} << bit))
          return word * 64 + static_cast<size_t>(bit);
      }
    }
  }

  std::byte* base_;
  size_t part_bytes_;
  std::array<std::atomic<uint64_t>, kMost / 64> taken_{};
};

}  // namespace anneal::cpu
