#include "anneal/kernels/cuda/kernels/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/kernels/cuda/kernels/function_kernel.h"

namespace anneal::cuda {

std::string Lines::count() const {
  std::vector<std::string> sizes;
  for (int axis = 0; axis < request_.inputs[0].type.shape.rank(); ++axis)
    if (axis != axis_) sizes.push_back(extents_.input_dim(0, axis));
  return product(sizes);
}

std::string Lines::coordinates() const {
  std::string text = "[[maybe_unused]] i64 rest = line;\n";
  for (int axis = request_.inputs[0].type.shape.rank(); axis-- > 0;)
    if (axis != axis_)
      text += fmt::format("[[maybe_unused]] const i64 i{0} = rest % {1};\nrest /= {1};\n", axis,
                          extents_.input_dim(0, axis));
  return text;
}

std::string Lines::base(OperandAt of) const {
  const Shape& space =
      (of.output ? request_.outputs : request_.inputs)[static_cast<size_t>(of.index)].type.shape;
  return offset_text(request_, extents_, of, space, [this](int axis) {
    return axis == axis_ ? std::string("i64(0)") : fmt::format("i{}", axis);
  });
}

int64_t Lines::count(const Dims& x, int axis) {
  int64_t lines = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) lines *= x[i];
  return lines;
}

int64_t usual_lines(const Request& request, int axis) {
  int64_t lines = 1;
  const Shape& shape = request.inputs[0].type.shape;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) lines *= std::max<int64_t>(request.sizes.range(shape[i]).opt, 1);
  return lines;
}

int64_t usual_length(const Request& request, int axis) {
  return std::max<int64_t>(request.sizes.range(request.inputs[0].type.shape[axis]).opt, 1);
}

std::string line_loop(int threads, int block_threads, const std::string& body) {
  return fmt::format(
      "for (i64 line = i64(blockIdx.x) * {per_block} + threadIdx.x / {threads}; line < lines;\n"
      "     line += i64(gridDim.x) * {per_block}) {{\n{body}}}\n",
      fmt::arg("threads", threads), fmt::arg("per_block", block_threads / threads),
      fmt::arg("body", body));
}

}  // namespace anneal::cuda
