// Memory for the packed constants of kernels that are only chosen from.
#pragma once
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// Kernels made with it must not run: their weights are not packed. Large allocations stay
// untouched, so the system gives them no pages.
class UnfilledConstants final : public PackedConstants {
 public:
  std::optional<Tensor> find(std::string_view, size_t bytes) override {
    return allocate_tensor(DataType::kU8, {static_cast<int64_t>(bytes)}).tensor;
  }
  void keep(std::string_view, const Tensor&) override {}
};

}  // namespace anneal
