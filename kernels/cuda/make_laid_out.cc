#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"

namespace anneal {

LaidOutKernel make_laid_out(const KernelEntry& entry, const Request& request, FreeInputs free) {
  const cuda::InputLayout* const layout = cuda::input_layout_of(entry.name);
  if (layout == nullptr) return {entry.make(request)};
  std::vector<Operand> inputs(request.inputs.begin(), request.inputs.end());
  Request other = request;
  other.inputs = inputs;
  std::vector<LaidOutInput> laid_out;
  for (size_t i = 0; i < static_cast<size_t>(request.op_input_count); ++i) {
    const bool is_constant = inputs[i].constant != nullptr;
    if (!inputs[i].present || !(is_constant || free == FreeInputs::kAll)) continue;
    auto strides = layout->strides(other, i);
    if (!strides || *strides == inputs[i].strides) continue;
    inputs[i].strides = *strides;
    inputs[i].constant = nullptr;
    laid_out.push_back({i, *std::move(strides)});
  }
  return {entry.make(other), std::move(laid_out)};
}

}  // namespace anneal
