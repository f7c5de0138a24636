#include "anneal/engine/builder/weight_pool.h"

#include "anneal/core/bytes.h"

namespace anneal {

uint64_t WeightPool::add(const Tensor& tensor, std::string_view name) {
  const uint64_t hash = hash_bytes(tensor.bytes());
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
