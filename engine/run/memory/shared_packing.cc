#include "anneal/engine/run/memory/shared_packing.h"

#include <sys/mman.h>

#include <cstring>

#include "anneal/core/integer.h"

namespace anneal {
namespace {

constexpr size_t kFewToPack = size_t{1} << 20;  // kernels keep what they pack into fewer
constexpr size_t kCapacity = size_t{8} << 30;   // of address space
constexpr size_t kPlaceAlignment = 64;
constexpr int64_t kClearedAtOnce = 1 << 20;  // bytes

}  // namespace

std::shared_ptr<SharedPacking> SharedPacking::make() {
  void* const memory = mmap(nullptr, kCapacity, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, kCapacity, MADV_HUGEPAGE);  // advice, as of any large tensor
  return std::make_shared<SharedPacking>(static_cast<std::byte*>(memory));
}

SharedPacking::~SharedPacking() { munmap(data_, kCapacity); }

std::optional<NewTensor> SharedPacking::take(size_t bytes, size_t& used, ThreadTeam& team) {
  if (bytes < kFewToPack || bytes > kCapacity - used) return std::nullopt;
  const std::span<std::byte> data(data_ + used, bytes);
  used += align_up(bytes, kPlaceAlignment);
  team.for_ranges(static_cast<int64_t>(bytes), kClearedAtOnce, [&](int64_t begin, int64_t end) {
    std::memset(data.data() + begin, 0, static_cast<size_t>(end - begin));
  });
  return NewTensor{{DataType::kU8, {static_cast<int64_t>(bytes)}, shared_from_this(), data}, data};
}

}  // namespace anneal
