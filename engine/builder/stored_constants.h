// Constants in the strides that kernels request (kernels/laid_out.h).
#pragma once
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/engine/builder/weight_pool.h"
#include "anneal/engine/plan.h"

namespace anneal {

// The constants of a plan that is being emitted: until pool(), the offset of a weight's slot is the
// index of a constant.
class StoredConstants {
 public:
  // Strides other than row-major make memory of one axis, with zeros between the elements.
  // REQUIRES: strides are not negative, and no two elements share a place.
  uint64_t add(const Tensor& constant, const Dims& strides);
  // Drops slots of weights that nothing reads, and gives the pool what the others hold.
  void pool(Plan& plan, WeightPool& weights) const;

 private:
  std::vector<Tensor> constants_;
};

}  // namespace anneal
