#include "anneal/engine/builder/weight_pool.h"

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/file.h"

namespace anneal {
namespace {

// Of blocks that lie all over the bytes: what has the same hash is compared anyway.
uint64_t sampled_hash(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 64, kBlocks = 256;
  const size_t step = std::max(kBlock, bytes.size() / kBlocks);
  uint64_t hash = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += step)
    hash = hash_bytes(bytes.subspan(at, std::min(kBlock, bytes.size() - at)), hash);
  return hash;
}

}  // namespace

uint64_t WeightPool::add(const Tensor& tensor, std::string_view name) {
  const uint64_t hash = sampled_hash(tensor.bytes());
  give_pages_back(tensor);  // the system maps pages beside those that are read
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if ((shared_ == EqualWeights::kAll || names_[it->second] == name) &&
        tensors_[it->second] == tensor)
      return it->second;
  by_hash_.emplace(hash, tensors_.size());
  tensors_.push_back(tensor);
  names_.emplace_back(name);
  return tensors_.size() - 1;
}

}  // namespace anneal
