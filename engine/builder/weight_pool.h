// Weights of an engine file, stored once by content.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

// Which equal weights are stored once.
enum class EqualWeights : uint8_t {
  kAll,
  kOfOneName,  // of several plans, say. The index is then the same for other weights
};

class WeightPool {
 public:
  explicit WeightPool(EqualWeights shared = EqualWeights::kAll) : shared_(shared) {}
  // The index of an equal tensor, added if there is none. name: of the value.
  uint64_t add(const Tensor& tensor, std::string_view name);
  std::vector<Tensor> take() { return std::move(tensors_); }

 private:
  EqualWeights shared_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;
  std::unordered_multimap<uint64_t, uint64_t> by_hash_;
};

}  // namespace anneal
