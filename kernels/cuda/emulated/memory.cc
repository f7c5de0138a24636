#include "anneal/kernels/cuda/emulated/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace anneal::cuda {
namespace {

constexpr uint64_t kPage = 4096;
// Behind the start of a page, so that nothing is aligned to more by luck.
constexpr uint64_t kOffset = 256;
constexpr size_t kFreedKept = 256;

// Of the mapping: a page that cannot be touched, the bytes, and another such page.
uint64_t mapped_bytes(uint64_t bytes) {
  return (kOffset + bytes + kPage - 1) / kPage * kPage + 2 * kPage;
}

// Describes an address in an allocation of which kernels may access a part.
std::string describe_open(uint64_t address, const EmulatedMemory::Allocation& allocation) {
  const uint64_t begin = allocation.open_begin, bytes = allocation.open_bytes;
  const std::string tensor = fmt::format("a tensor of {} bytes", bytes);
  if (address < begin) return fmt::format("{} bytes before {}", begin - address, tensor);
  if (address - begin < bytes) return fmt::format("at byte {} of {}", address - begin, tensor);
  return fmt::format("{} bytes behind {}", address - begin - bytes, tensor);
}

}  // namespace

EmulatedMemory::Mapping EmulatedMemory::mapping_of(const Allocation& allocation) {
  return {host(allocation.begin) - kOffset - kPage, mapped_bytes(allocation.bytes)};
}

EmulatedMemory::~EmulatedMemory() {
  for (const auto& [begin, allocation] : allocations_) {
    const Mapping mapping = mapping_of(allocation);
    munmap(mapping.begin, mapping.bytes);
  }
}

uint64_t EmulatedMemory::allocate(uint64_t bytes) {
  if (bytes > limit_ - used_) return 0;
  const size_t mapped = mapped_bytes(bytes);
  void* const at =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  auto* const inside = static_cast<std::byte*>(at) + kPage;
  if (mprotect(inside, mapped - 2 * kPage, PROT_READ | PROT_WRITE) != 0) {
    munmap(at, mapped);
    return 0;
  }
  std::memset(inside, 0xff, mapped - 2 * kPage);
  const uint64_t begin = device(reinterpret_cast<uint64_t>(inside + kOffset));
  allocations_[begin] = {begin, bytes, true, begin, bytes};
  used_ += bytes;
  ++live_;
  return begin;
}

bool EmulatedMemory::free(uint64_t address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second.live) return false;
  found->second.live = false;
  used_ -= found->second.bytes;
  --live_;
  const Mapping mapping = mapping_of(found->second);
  mmap(mapping.begin, mapping.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.push_back(address);
  if (freed_.size() > kFreedKept) {
    const auto oldest = allocations_.find(freed_.front());
    const Mapping old = mapping_of(oldest->second);
    munmap(old.begin, old.bytes);
    allocations_.erase(oldest);
    freed_.pop_front();
  }
  return true;
}

bool EmulatedMemory::limit_access(uint64_t begin, uint64_t bytes) {
  if (!holds(begin, bytes)) return false;
  if (!has_limits_) return true;
  Allocation& allocation = std::prev(allocations_.upper_bound(begin))->second;
  allocation.open_begin = begin;
  allocation.open_bytes = bytes;
  return true;
}

const EmulatedMemory::Allocation* EmulatedMemory::find(uint64_t address) const {
  const auto behind = allocations_.upper_bound(address);
  if (behind == allocations_.begin()) return nullptr;
  const Allocation& allocation = std::prev(behind)->second;
  return allocation.live && address - allocation.begin <= allocation.bytes ? &allocation : nullptr;
}

bool EmulatedMemory::holds(uint64_t address, uint64_t bytes) const {
  const Allocation* allocation = find(address);
  return allocation != nullptr && bytes <= allocation->begin + allocation->bytes - address;
}

std::string EmulatedMemory::describe(uint64_t address) const {
  if (!is_device(address)) {
    if (address < kPage) return fmt::format("at {:#x}, through a null pointer", address);
    return fmt::format("at {:#x}, which is host memory or none", address);
  }
  const auto after = allocations_.upper_bound(address);
  const Allocation* before = after == allocations_.begin() ? nullptr : &std::prev(after)->second;
  const auto named = [](const Allocation& a) {
    return fmt::format("{} allocation of {} bytes", a.live ? "an" : "a freed", a.bytes);
  };
  const uint64_t past = before == nullptr ? ~uint64_t{0} : address - before->begin;
  if (before != nullptr && past < before->bytes)
    return before->live && before->open_bytes != before->bytes
               ? describe_open(address, *before)
               : fmt::format("at byte {} of {}", past, named(*before));
  const uint64_t to_end = before == nullptr ? ~uint64_t{0} : past - before->bytes;
  const uint64_t to_next =
      after == allocations_.end() ? ~uint64_t{0} : after->second.begin - address;
  if (before == nullptr && after == allocations_.end())
    return fmt::format("at {:#x}, and there is no allocation", address);
  if (to_next < to_end) return fmt::format("{} bytes before {}", to_next, named(after->second));
  return fmt::format("{} bytes behind {}", to_end, named(*before));
}

}  // namespace anneal::cuda
