// The strides that GPU kernels request (kernels/laid_out.h).
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// The request of a kernel: strides in which it reads an input of the op faster than as the request
// has it, or in which alone it reads it; nullopt: none. They put no two elements in one place.
struct InputLayout {
  std::string_view kernel;
  std::optional<Shape> (*strides)(const Request& request, size_t input);
};
// The layout that the kernel of that name requests; null: none.
const InputLayout* input_layout_of(std::string_view kernel);

std::span<const InputLayout> conv_input_layouts();
std::span<const InputLayout> conv_depthwise_input_layouts();
std::span<const InputLayout> conv_transpose_input_layouts();
std::span<const InputLayout> matmul_input_layouts();
std::span<const InputLayout> cudnn_input_layouts();

// Dense strides of an operand with these axes from the slowest to the fastest; nullopt if a size is
// not known.
std::optional<Shape> dense_strides(const Operand& operand, std::span<const int> order);

}  // namespace anneal::cuda
