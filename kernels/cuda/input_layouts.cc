#include "anneal/kernels/cuda/input_layouts.h"

#include <algorithm>

#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace cuda {
namespace {

const InputLayout* layout_of(std::string_view kernel) {
  for (const auto family : {conv_input_layouts, conv_depthwise_input_layouts, matmul_input_layouts})
    for (const InputLayout& layout : family())
      if (layout.kernel == kernel) return &layout;
  return nullptr;
}

}  // namespace

std::optional<Shape> dense_strides(const Operand& operand, std::span<const int> order) {
  if (!known(operand.type.shape)) return std::nullopt;
  Shape strides = operand.type.shape;
  int64_t next = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = next;
    next *= std::max<int64_t>(operand.type.shape[*axis].value(), 1);
  }
  return strides;
}

}  // namespace cuda

LaidOutKernel make_laid_out(const KernelEntry& entry, const Request& request, FreeInputs free) {
  const cuda::InputLayout* const layout = cuda::layout_of(entry.name);
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
