// Memory for tensors, new or of an owner.
#include "anneal/core/new_tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/core/type.h"

namespace anneal {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLargePage = size_t{2} << 20;

size_t byte_size(DataType dtype, const Dims& dims) {
  size_t bytes;
  if (__builtin_mul_overflow(static_cast<size_t>(count(dims)), size_of(dtype), &bytes) ||
      bytes > PTRDIFF_MAX - kLargePage)
    fail(ErrorCode::kInvalidArgument,
         "more than 2^63 bytes in a tensor of shape " + to_string(dims));
  return bytes;
}

void check_bytes(DataType dtype, const Dims& dims, size_t bytes) {
  if (const size_t wanted = byte_size(dtype, dims); bytes != wanted)
    fail(ErrorCode::kInvalidArgument, std::string("a tensor ") + std::string(to_string(dtype)) +
                                          to_string(dims) + " takes " + std::to_string(wanted) +
                                          " bytes, the memory has " + std::to_string(bytes));
}

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kLeastMapped = PTRDIFF_MAX;  // the sanitizer checks accesses of the heap only
#else
constexpr size_t kLeastMapped = kLargePage;
#endif

// Large blocks are mapped: the system gives their pages as zeros when a thread first writes to
// them, where the heap would zero memory that it uses again, by this thread alone.
std::shared_ptr<void> zeroed_block(size_t bytes) {
  const bool is_mapped = bytes >= kLeastMapped;
  void* const memory =
      is_mapped ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                : std::calloc(bytes, 1);
  if (!memory || memory == MAP_FAILED)
    fail(ErrorCode::kOutOfMemory, "no host memory for " + std::to_string(bytes) + " bytes");
  if (!is_mapped) return {memory, std::free};
  return {memory, [bytes](void* block) { munmap(block, bytes); }};
}

NewTensor allocate_from(const std::shared_ptr<Allocator>& allocator, DataType dtype,
                        const Dims& dims) {
  const size_t bytes = byte_size(dtype, dims), whole = std::max<size_t>(bytes, 1);
  void* const memory = allocator->allocate(whole, kAlignment);
  if (!memory)
    fail(ErrorCode::kOutOfMemory,
         "the allocator has no memory for " + std::to_string(whole) + " bytes");
  std::shared_ptr<void> owner(memory,
                              [allocator, whole](void* held) { allocator->release(held, whole); });
  std::memset(memory, 0, whole);
  auto* data = static_cast<std::byte*>(memory);
  return {Tensor(dtype, dims, std::move(owner), {data, bytes}), {data, bytes}};
}

}  // namespace

NewTensor allocate_tensor(DataType dtype, const Dims& dims,
                          const std::shared_ptr<Allocator>& allocator) {
  if (allocator) return allocate_from(allocator, dtype, dims);
  const size_t bytes = byte_size(dtype, dims);
  const size_t alignment = bytes < kLargePage ? kAlignment : kLargePage;
  std::shared_ptr<void> owner = zeroed_block(bytes + alignment);
  void* start = owner.get();
  size_t space = bytes + alignment;
  auto* data = static_cast<std::byte*>(std::align(alignment, bytes, start, space));
  // Large pages where they are whole: packing weights would take a fault for each small one, and
  // reading them a miss of the TLB. Advice: where the system does not take it, they stay small.
  if (bytes >= kLargePage) madvise(data, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return {Tensor(dtype, dims, std::move(owner), {data, bytes}), {data, bytes}};
}

Tensor::Tensor(DataType dtype, const Dims& dims, std::shared_ptr<const void> owner,
               std::span<const std::byte> bytes)
    : dtype_(dtype), dims_(dims), owner_(std::move(owner)), bytes_(bytes) {
  check_bytes(dtype, dims, bytes.size());
}

Tensor Tensor::copy_of(DataType dtype, const Dims& dims, std::span<const std::byte> bytes) {
  return at_entry([&] {
    check_bytes(dtype, dims, bytes.size());
    const NewTensor copy = allocate_tensor(dtype, dims);
    std::ranges::copy(bytes, copy.data.begin());
    return copy.tensor;
  });
}

Tensor reshaped(const Tensor& tensor, const Dims& dims) {
  const auto owner = std::make_shared<const Tensor>(tensor);
  return {tensor.dtype(), dims, owner, owner->bytes()};
}

Type type_of(const Tensor& tensor) { return {tensor.dtype(), shape_of(tensor.dims())}; }

}  // namespace anneal
