#include "anneal/engine/run/memory/packed_memory.h"

#include <algorithm>

#include "anneal/core/integer.h"

namespace anneal {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kFew = size_t{1} << 20;       // of a small engine, which needs no block
constexpr size_t kOwnPages = size_t{2} << 20;  // allocate_tensor() gives these large pages
constexpr size_t kBlock = size_t{16} << 20;
#ifdef __SANITIZE_ADDRESS__
constexpr bool kHasBlocks = false;
#else
constexpr bool kHasBlocks = true;
#endif

}  // namespace

NewTensor PackedMemory::allocate(size_t bytes) {
  const auto count = [](size_t size) { return Dims{static_cast<int64_t>(size)}; };
  if (bytes < kOwnPages) bytes_ += bytes;
  if (!kHasBlocks || bytes >= kOwnPages || bytes_ <= kFew)
    return allocate_tensor(DataType::kU8, count(bytes));
  if (room_.size() < bytes) {
    const NewTensor block = allocate_tensor(DataType::kU8, count(kBlock));
    owner_ = std::make_shared<const Tensor>(block.tensor);
    room_ = block.data;
  }
  const std::span<std::byte> data = room_.first(bytes);
  room_ = room_.subspan(std::min(align_up(bytes, kAlignment), room_.size()));
  return {Tensor(DataType::kU8, count(bytes), owner_, data), data};
}

}  // namespace anneal
