// Memory of a virtual card, and the checks of each access: bounds, alignment, initialisation, and
// races between threads that nothing orders.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/ptx/mark.h"

namespace anneal::ptx {

// A program did what has no defined result. The message names function and line.
class Fault : public std::runtime_error {
 public:
  // As CUDA's errors: an illegal address, a misaligned one, or what a card would not notice.
  enum Kind : uint8_t { kAddress, kMisaligned, kUndefined, kEndless };
  Fault(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

inline constexpr uint64_t kFirstAddress = uint64_t{1} << 48;  // above all of the host

// Global memory. Addresses are none of the host's, and allocations lie far apart, so that an access
// beyond one hits nothing.
class GlobalMemory {
 public:
  struct Free {
    void operator()(Mark* marks) const { std::free(marks); }
  };
  using Marks = std::unique_ptr<Mark[], Free>;  // pages that are never written take no memory
  struct Allocation {
    static constexpr uint64_t kWordBytes = 4;
    uint64_t address = 0;
    uint64_t number = 0;  // no other allocation of the memory has it
    size_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
    std::unique_ptr<uint8_t[]> written;  // by byte: 1 if it has a value
    // By byte: who wrote it last; kManyBlocks if several blocks did, by atomic operations.
    Marks writer;
    // Who read it first in the last launch that did: by word of 4 bytes, of loads of whole words,
    // and by byte, of the others. Blocks run one after the other, so a block that finds itself
    // there has no reader before it.
    Marks word_reader, byte_reader;
    std::atomic<bool> has_byte_readers = false;

    // Two launches of two streams may read the same bytes at the same time.
    void add_reader(uint64_t at, uint32_t count, Mark me);
    // A reader in this launch that is another block; 0: none. REQUIRES: the bytes are inside.
    Mark other_reader(uint64_t at, uint32_t count, Mark me) const;
  };

  // The addresses of another memory are others. reuses_addresses: an allocation gets the address
  // that was freed last, as often on a card; else one that none had before.
  explicit GlobalMemory(uint64_t first_address = kFirstAddress, bool reuses_addresses = false)
      : reuses_addresses_(reuses_addresses), next_(first_address) {}

  uint64_t allocate(size_t bytes);
  bool release(uint64_t address);  // false: there is none at this address
  // The allocation with this byte; null: there is none. It stays while it is not released.
  Allocation* find(uint64_t address) const;
  // The last allocation that begins at the address or before it; null: none.
  const Allocation* before(uint64_t address) const;
  size_t count() const;
  uint64_t next_address() const { return next_; }  // of the next allocation
  uint64_t bytes() const;

 private:
  const bool reuses_addresses_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;  // by their end
  std::vector<uint64_t> freed_;                                  // addresses, the last freed last
  uint64_t next_;
  uint64_t made_ = 0;  // allocations
};

inline void GlobalMemory::Allocation::add_reader(uint64_t at, uint32_t count, Mark me) {
  const auto add = [me](Mark& reader) {
    const std::atomic_ref first(reader);
    if (!is_of_launch(first.load(std::memory_order_relaxed), me))
      first.store(me, std::memory_order_relaxed);
  };
  if (count % kWordBytes == 0) {
    for (uint64_t word = at / kWordBytes; word < (at + count) / kWordBytes; ++word)
      add(word_reader[word]);
    return;
  }
  if (!has_byte_readers.load(std::memory_order_relaxed))
    has_byte_readers.store(true, std::memory_order_relaxed);
  for (uint64_t byte = at; byte < at + count; ++byte) add(byte_reader[byte]);
}

inline Mark GlobalMemory::Allocation::other_reader(uint64_t at, uint32_t count, Mark me) const {
  const auto find = [me](const Marks& readers, uint64_t begin, uint64_t end) -> Mark {
    for (uint64_t i = begin; i < end; ++i) {
      const Mark mark = std::atomic_ref(readers[i]).load(std::memory_order_relaxed);
      if (is_of_other(mark, me)) return mark;
    }
    return 0;
  };
  const Mark of_words = find(word_reader, at / kWordBytes, (at + count - 1) / kWordBytes + 1);
  if (of_words != 0 || !has_byte_readers.load(std::memory_order_relaxed)) return of_words;
  return find(byte_reader, at, at + count);
}

// The shared memory of one block.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  // For the next block, whose times are later.
  void clear();

  size_t bytes() const { return data_.size(); }
  std::byte* data() { return data_.data(); }

  // The time of an access: accesses of different threads are ordered if a barrier of the block, or
  // one of their common warp, lies between them.
  struct Time {
    uint32_t block = 0, warp = 0;
  };
  // The thread that had the byte at an unordered time; -1: none, and the access is recorded.
  // REQUIRES: the bytes are inside.
  int write(uint32_t at, uint32_t bytes, uint32_t thread, Time time);
  int read(uint32_t at, uint32_t bytes, uint32_t thread, Time time);
  // Atomic operations of several threads need no order among themselves.
  int update(uint32_t at, uint32_t bytes, uint32_t thread, Time time);
  bool is_written(uint32_t at, uint32_t bytes) const;
  // The bytes have no value until a copy that is under way has arrived.
  void forget(uint32_t at, uint32_t bytes);

 private:
  struct Access {
    uint32_t block = 0, warp = 0;
    int32_t thread = -1;
  };
  // Of a byte, or of four that were accessed together.
  struct History {
    Access write, read;
    Access other;                  // the last read by another warp than that of `read`
    bool is_read_by_more = false;  // by more threads of the warp of `read`, at its time
    Access update;                 // the last atomic operation
    // Atomic operations of other threads of its warp at the time of `update`, or of other warps.
    bool is_updated_by_more = false, is_updated_by_warps = false;

    int add_write(uint32_t thread, Time time);
    int add_read(uint32_t thread, Time time);
    int add_update(uint32_t thread, Time time);
    bool is_after_updates(uint32_t thread, Time time) const;
    bool has_lost_reader(uint32_t thread, Time time) const;
  };
  static bool is_ordered(const Access& before, uint32_t thread, Time time);
  template <class Add>
  int for_each(uint32_t at, uint32_t bytes, Time time, Add add);

  static constexpr uint32_t kWord = 4;
  std::vector<std::byte> data_;
  std::vector<uint8_t> written_;
  std::vector<History> words_;
  std::vector<uint8_t> is_split_;  // by word: its bytes have histories of their own
  std::vector<History> bytes_;     // empty until a word is split
};

}  // namespace anneal::ptx
