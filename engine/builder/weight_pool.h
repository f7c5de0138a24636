// Weights of an engine file, stored once by content.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

class WeightPool {
 public:
  uint64_t add(const Tensor& tensor);  // index of an equal tensor, added if there is none
  std::vector<Tensor> take() { return std::move(tensors_); }

 private:
  std::vector<Tensor> tensors_;
  std::unordered_multimap<uint64_t, uint64_t> by_hash_;
};

}  // namespace anneal
