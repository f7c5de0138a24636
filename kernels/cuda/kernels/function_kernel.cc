#include "anneal/kernels/cuda/kernels/function_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

struct PreparedFunction final : PreparedKernel {
  Geometry geometry;
  std::vector<int64_t> values;
  std::vector<TensorView> inputs, outputs;
};

}  // namespace

std::unique_ptr<PreparedKernel> FunctionKernel::prepare(std::span<const TensorView> inputs,
                                                        std::span<const TensorView> outputs,
                                                        int) const {
  auto prepared = std::make_unique<PreparedFunction>();
  prepared->inputs.resize(parts_.looks.of_inputs.size());
  prepared->outputs.resize(parts_.looks.of_outputs.size());
  parts_.looks.apply(inputs, outputs, prepared->inputs, prepared->outputs);
  prepared->values = values_of(parts_.sources, prepared->inputs, prepared->outputs);
  prepared->geometry = geometry(prepared->inputs, prepared->outputs);
  return prepared;
}

void FunctionKernel::launch(const LaunchArgs& args) const {
  auto& prepared = static_cast<PreparedFunction&>(*args.prepared);
  if (prepared.geometry.grid[0] == 0) return;
  parts_.looks.apply(args.inputs, args.outputs, prepared.inputs, prepared.outputs);
  Arguments arguments;
  for (const TensorView& input : prepared.inputs) arguments.add(input);
  for (const TensorView& output : prepared.outputs) arguments.add(output);
  add_extra(arguments, prepared.inputs, prepared.outputs);
  for (const int64_t value : prepared.values) arguments.add(value);
  cuda::launch(args.stream, *parts_.function, prepared.geometry, arguments);
}

uint32_t FunctionKernel::blocks(int64_t threads, int threads_per_block) const {
  const int64_t most = int64_t{parts_.spec->multiprocessors} *
                       (parts_.spec->threads_per_multiprocessor / threads_per_block);
  return static_cast<uint32_t>(std::min(ceil_div(threads, threads_per_block), most));
}

FunctionKernel::Parts parts_of(const Request& request, const OperandViews& seen,
                               const Extents& extents, FunctionText text) {
  return {code_of(request.device).add(std::move(text)), seen.looks(), extents.sources(),
          &spec_of(request.device)};
}

std::string input_parameters(const Request& request, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{}In<{}> x{}", i == 0 ? "" : ", ",
                        type_text(request.inputs[static_cast<size_t>(i)].type.dtype), i);
  return text;
}

std::string_view thread_numbers() {
  return "const i64 threads = i64(gridDim.x) * blockDim.x;\n"
         "const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x;\n";
}

std::string element_loop(const std::vector<std::string>& dims, bool small, std::string_view from,
                         std::string_view to, const std::string& body) {
  const char* const type = small ? "i32" : "i64";
  std::string text = fmt::format("for ({0} n = {0}({1} + thread); n < {2}; n += {0}(threads)) {{\n",
                                 type, from, to);
  if (dims.size() > 1) text += fmt::format("{} rest = n;\n", type);
  for (size_t axis = dims.size(); axis-- > 1;)
    text += fmt::format("const {0} i{1} = rest % {0}({2});\nrest /= {0}({2});\n", type, axis,
                        dims[axis]);
  if (!dims.empty())
    text += fmt::format("const {} i0 = {};\n", type, dims.size() > 1 ? "rest" : "n");
  return text + body + "}\n";
}

std::string product(const std::vector<std::string>& factors) {
  std::string text;
  for (const std::string& factor : factors) text += (text.empty() ? "" : " * ") + factor;
  return text.empty() ? "i64(1)" : text;
}

std::vector<std::string> output_dims(const Request& request, Extents& extents, int output) {
  std::vector<std::string> dims;
  const int rank = request.outputs[static_cast<size_t>(output)].type.shape.rank();
  for (int axis = 0; axis < rank; ++axis) dims.push_back(extents.output_dim(output, axis));
  return dims;
}

}  // namespace anneal::cuda
