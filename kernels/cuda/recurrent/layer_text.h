// Text of a struct Layer, through whose functions the algorithms of device/recurrent.h and
// device/linear_attention.h reach the operands.
#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

using CoordinateNames = std::initializer_list<std::string_view>;  // by axis

inline std::string function_text(std::string_view result, std::string_view name,
                                 std::string_view parameters, std::string_view body) {
  return fmt::format("  __device__ {} {}({}) const {{ {} }}\n", result, name, parameters, body);
}

// A function that gives the size of an axis of an input.
inline std::string size_text(Extents& extents, std::string_view name, size_t input, int axis) {
  return function_text(
      "Index", name, "",
      fmt::format("return Index({});", extents.input_dim(static_cast<int>(input), axis)));
}

// Where the element at these coordinates lies in an operand.
inline std::string place_text(const Request& request, Extents& extents, bool of_output,
                              size_t operand, CoordinateNames at) {
  const auto& operands = of_output ? request.outputs : request.inputs;
  return offset_text(request, extents, {of_output, static_cast<int>(operand)},
                     operands[operand].type.shape,
                     [&](int axis) { return std::string(at.begin()[axis]); });
}

inline bool is_present(const Request& request, size_t input) {
  return input < request.inputs.size() && request.inputs[input].present;
}

}  // namespace anneal::cuda
