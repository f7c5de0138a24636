#include "anneal/core/tensor.h"

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

}  // namespace

Tensor::Fresh Tensor::allocate(DataType dtype, const Dims& dims) {
  const size_t bytes = byte_size(dtype, dims);
  const size_t alignment = bytes < kLargePage ? kAlignment : kLargePage;
  // calloc, because it gets large blocks from the system already zeroed.
  std::shared_ptr<void> owner(std::calloc(bytes + alignment, 1), std::free);
  if (!owner) fail(ErrorCode::kDevice, "no host memory for " + std::to_string(bytes) + " bytes");
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
  check(bytes.size() == byte_size(dtype, dims), "bytes fit the tensor");
}

Type Tensor::type() const { return {dtype_, shape_of(dims_)}; }

TensorView Tensor::view() const {
  return row_major_view(dtype_, dims_, const_cast<std::byte*>(bytes_.data()));
}

bool Tensor::operator==(const Tensor& other) const {
  if (dtype_ != other.dtype_ || dims_ != other.dims_) return false;
  return bytes_.empty() || bytes_.data() == other.bytes_.data() ||
         std::memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

}  // namespace anneal
