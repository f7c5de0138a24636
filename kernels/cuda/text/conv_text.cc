#include "anneal/kernels/cuda/text/conv_text.h"

#include <fmt/format.h>

#include "anneal/graph/op/infer.h"

namespace anneal::cuda {

std::string why_no_conv_text(const Request& request) {
  const int rank = request.inputs[0].type.shape.rank();
  return rank < 3 || rank > 5 ? "only one to three spatial axes" : "";
}

DataType conv_accumulator(const Request& request) {
  const DataType x = request.inputs[0].type.dtype;
  return size_of(x) == 1 ? DataType::kI32 : accumulator(x);
}

void add_kernel(ShapeText& shape, Extents& extents, const Request& request) {
  const int rank = request.inputs[0].type.shape.rank();
  for (int i = 0; i < 3; ++i) {
    const int axis = axis_of(i, rank);
    const char letter = "zyx"[i];
    shape.number(fmt::format("kernel_{}", letter), axis < 0 ? "1" : extents.input_dim(1, axis));
    shape.number(fmt::format("w_{}", letter), axis < 0 ? "0" : extents.input_stride(1, axis));
  }
}

void add_conv(ShapeText& shape, Extents& extents, const Conv& op, const Request& request) {
  add_window(shape, extents, request, {op.strides, op.pads_begin, op.pads_end, op.dilations},
             false);
  add_kernel(shape, extents, request);
  shape.number("w_k", extents.input_stride(1, 0));
  shape.number("w_c", extents.input_stride(1, 1));
}

std::string weight_zeros_definition(const ZeroText& zero, const Extents& extents,
                                    std::string_view accumulator) {
  return fmt::format(
      "struct Zeros {{\n  enum : bool {{ kHasZero = {} }};\n  i64 first;\n{}"
      "  __device__ {} of(i64 k) const {{\n{}    return {};\n  }}\n}};\n",
      zero.is_present(), zero.members(extents), accumulator,
      zero.is_per_line() ? "    const i64 i = first + k;\n" : "", zero.value());
}

std::string weight_zeros(const ZeroText& zero, const Extents& extents, std::string_view first) {
  return fmt::format("Zeros{{{}{}}}", first, zero.arguments(extents));
}

}  // namespace anneal::cuda
