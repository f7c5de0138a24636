// The weights of a Recurrent layer, packed for products.
#pragma once
#include <array>
#include <cstdint>

#include "anneal/core/tensor.h"
#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {

// The weights of all directions and gates, packed in parts: gates whose sums are computed together
// are one part. For GRU, the candidate is a separate part.
class GateWeights {
 public:
  GateWeights() = default;
  GateWeights(const GemmKernels& kernels, RecurrentKind kind, int64_t directions, int64_t hidden,
              int64_t k);
  const PackLayout& part(int index) const { return parts_[static_cast<size_t>(index)]; }
  int64_t columns() const { return parts_[0].padded_columns() + parts_[1].padded_columns(); }
  int64_t panels() const { return parts_[0].panels() + parts_[1].panels(); }
  int64_t panel_bytes() const { return parts_[0].panel_bytes(); }
  int64_t bytes() const { return directions_ * panels() * panel_bytes(); }
  // Of the first panel of a part, in bytes.
  int64_t offset(int64_t direction, int part) const {
    return (direction * panels() + (part == 0 ? 0 : parts_[0].panels())) * panel_bytes();
  }

  // One of the panels of all directions. weights: f32[directions, gates * hidden, k].
  void pack(const TensorView& weights, int64_t index, std::byte* to,
            PackTo where = PackTo::kCache) const;

 private:
  int64_t directions_ = 1;
  std::array<PackLayout, 2> parts_;
};

}  // namespace anneal::cpu
