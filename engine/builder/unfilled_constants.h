// Packed constants of kernels that a builder chooses from, and never runs.
#pragma once
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Gives memory that nobody fills: its pages stay without memory of the system, and no weight is
// packed.
class UnfilledConstants final : public PackedConstants {
 public:
  std::optional<Tensor> find(std::string_view, size_t bytes) override {
    return allocate_tensor(DataType::kU8, {static_cast<int64_t>(bytes)}).tensor;
  }
  void keep(std::string_view, const Tensor&) override {}
};

}  // namespace anneal
