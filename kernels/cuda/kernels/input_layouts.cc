#include "anneal/kernels/cuda/kernels/input_layouts.h"

#include <algorithm>

namespace anneal::cuda {

const InputLayout* input_layout_of(std::string_view kernel) {
  for (const auto family :
       {conv_input_layouts, conv_depthwise_input_layouts, conv_transpose_input_layouts,
        matmul_input_layouts, cudnn_input_layouts})
    for (const InputLayout& layout : family())
      if (layout.kernel == kernel) return &layout;
  return nullptr;
}

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

}  // namespace anneal::cuda
