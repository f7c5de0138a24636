#include "anneal/kernels/cpu/recurrent/gate_weights.h"

#include "anneal/kernels/cpu/reference/recurrent.h"

namespace anneal::cpu {

GateWeights::GateWeights(const GemmKernels& kernels, RecurrentKind kind, int64_t directions,
                         int64_t hidden, int64_t k)
    : directions_(directions) {
  const int64_t first = kind == RecurrentKind::kGru ? 2 : gates_of(kind);
  parts_[0] = PackLayout(kernels, k, first * hidden);
  parts_[1] = PackLayout(kernels, k, (gates_of(kind) - first) * hidden);
}

void GateWeights::pack(const TensorView& weights, int64_t index, std::byte* to,
                       PackTo where) const {
  const int64_t direction = index / panels(), panel = index % panels();
  const int part = panel < parts_[0].panels() ? 0 : 1;
  const int64_t row = part == 0 ? 0 : parts_[0].n;
  PackSource source;
  source.data = weights.data + (direction * weights.strides[0] + row * weights.strides[1]) * 4;
  source.column_stride = weights.strides[1];
  source.k_dims = {weights.dims[2]};
  source.k_strides = {weights.strides[2]};
  pack_panel(this->part(part), source, part == 0 ? panel : panel - parts_[0].panels(),
             to + offset(direction, part), where);
}

}  // namespace anneal::cpu
