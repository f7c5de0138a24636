#include "anneal/tests/engine/counting_new.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};
constexpr int64_t kNever = INT64_MAX;
std::atomic<int64_t> left{kNever};  // allocations that succeed before one fails
std::atomic<bool> fails_for_good{false};

bool fails() {
  if (left == kNever) return false;
  const int64_t before = left--;
  return before == 0 || (before < 0 && fails_for_good);
}

void* counted(size_t size, size_t alignment) noexcept {
  ++allocations;
  if (fails()) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size ? size : 1) == 0 ? memory : nullptr;
}

void* counted_or_throw(size_t size, size_t alignment) {
  if (void* memory = counted(size, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

namespace anneal::testing {
int64_t allocations_so_far() { return allocations; }

FailingAllocations::FailingAllocations(int64_t after, bool for_good) {
  fails_for_good = for_good;
  left = after;
}
FailingAllocations::~FailingAllocations() { left = kNever; }
}  // namespace anneal::testing

// All forms: a sanitizer's own forms do not call each other as the standard library's do, and it
// distinguishes memory of its `new` from memory of malloc.
void* operator new(size_t size) { return counted_or_throw(size, kDefault); }
void* operator new[](size_t size) { return counted_or_throw(size, kDefault); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return counted(size, kDefault); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return counted(size, kDefault);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<size_t>(alignment));
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
