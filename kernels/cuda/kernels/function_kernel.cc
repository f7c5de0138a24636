#include "anneal/kernels/cuda/kernels/function_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

struct PreparedFunction final : PreparedKernel {
  Geometry geometry;
  std::vector<int64_t> values;
  std::vector<TensorView> inputs, outputs;  // as the function sees them, where there are looks
  bool strides_allow = true;
};

constexpr size_t kHostInputAlignment = 64;

// Where the elements of a view lie: the first in memory, counted from its data, and the bytes up to
// the last one's end.
struct Extent {
  int64_t first = 0;
  size_t bytes = 0;
};
Extent extent_of(const TensorView& view) {
  if (count(view.dims) == 0) return {};
  const auto size = static_cast<int64_t>(size_of(view.dtype));
  int64_t first = 0, last = 0;
  for (int axis = 0; axis < view.dims.rank(); ++axis) {
    const int64_t reach = (view.dims[axis] - 1) * view.strides[axis];
    (reach < 0 ? first : last) += reach;
  }
  return {first * size, static_cast<size_t>((last - first + 1) * size)};
}

// The copy of a view of the host's, at `place`, which moves behind it.
TensorView copied(TensorView view, std::byte*& place, DeviceStream& stream) {
  const Extent extent = extent_of(view);
  cuda::copy(stream, place, view.data + extent.first, extent.bytes);
  view.data = place - extent.first;
  place += align_up(extent.bytes, kHostInputAlignment);
  return view;
}

const TensorView& view_of(const VectorAccess& access, std::span<const TensorView> inputs,
                          std::span<const TensorView> outputs) {
  return (access.is_output ? outputs : inputs)[access.operand];
}

}  // namespace

std::unique_ptr<PreparedKernel> FunctionKernel::prepare(std::span<const TensorView> inputs,
                                                        std::span<const TensorView> outputs,
                                                        int) const {
  auto prepared = std::make_unique<PreparedFunction>();
  if (parts_.looks) {
    prepared->inputs.resize(parts_.looks->of_inputs.size());
    prepared->outputs.resize(parts_.looks->of_outputs.size());
    parts_.looks->apply(inputs, outputs, prepared->inputs, prepared->outputs);
    inputs = prepared->inputs, outputs = prepared->outputs;
  }
  prepared->values = values_of(parts_.sources, inputs, outputs);
  prepared->geometry = parts_.geometry(inputs, outputs);
  for (const size_t input : parts_.host_inputs)
    prepared->workspace_bytes += align_up(extent_of(inputs[input]).bytes, kHostInputAlignment);
  for (const VectorAccess& access : parts_.vectors)
    prepared->strides_allow =
        prepared->strides_allow && strides_allow(access, view_of(access, inputs, outputs));
  return prepared;
}

void FunctionKernel::launch(const LaunchArgs& args) const {
  auto& prepared = static_cast<PreparedFunction&>(*args.prepared);
  if (prepared.geometry.grid[0] == 0) return;
  std::span<const TensorView> inputs = args.inputs, outputs = args.outputs;
  if (parts_.looks) {
    parts_.looks->apply(inputs, outputs, prepared.inputs, prepared.outputs);
    inputs = prepared.inputs, outputs = prepared.outputs;
  }
  const bool aligned = prepared.strides_allow &&
                       std::ranges::all_of(parts_.vectors, [&](const VectorAccess& access) {
                         return is_aligned(access, view_of(access, inputs, outputs));
                       });
  if (!aligned && !parts_.general)
    fail(ErrorCode::kInternal,
         fmt::format("{} is given memory that is less aligned than the plan said",
                     parts_.function->name));
  Arguments arguments;
  std::byte* place = args.workspace;
  for (const size_t input : parts_.inputs) {
    const bool is_on_host = std::ranges::count(parts_.host_inputs, input) != 0;
    arguments.add(is_on_host ? copied(inputs[input], place, args.stream) : inputs[input]);
  }
  for (const TensorView& output : outputs) arguments.add(output);
  if (parts_.extra) parts_.extra(arguments, inputs, outputs);
  for (const int64_t value : prepared.values) arguments.add(value);
  cuda::launch(args.stream, aligned ? *parts_.function : *parts_.general, prepared.geometry,
               arguments);
}

void FunctionKernel::know_alignments(std::span<const uint32_t> inputs,
                                     std::span<const uint32_t> outputs) {
  bool always = true, never = false;
  for (const VectorAccess& access : parts_.vectors) {
    const uint32_t known = (access.is_output ? outputs : inputs)[access.operand];
    const bool is_whole = known % access.bytes == 0;
    always = always && known != 0 && is_whole && access.has_whole_strides;
    never = never || !is_whole;
  }
  if (never) parts_.function = parts_.general, parts_.vectors.clear();
  if (always || never) parts_.general = nullptr;
}

FunctionParts parts_of(const Request& request, const OperandViews& seen, const Extents& extents,
                       FunctionText text) {
  FunctionParts parts;
  parts.function = code_of(request.device).add(std::move(text));
  parts.looks = seen.looks();
  parts.inputs.resize(parts.looks->of_inputs.size());
  std::iota(parts.inputs.begin(), parts.inputs.end(), size_t{0});
  parts.sources = extents.sources();
  return parts;
}

uint32_t resident_blocks_for(const DeviceSpec& spec, int64_t threads, int threads_per_block) {
  const int64_t most =
      int64_t{spec.multiprocessors} * (spec.threads_per_multiprocessor / threads_per_block);
  return static_cast<uint32_t>(std::min(ceil_div(threads, threads_per_block), most));
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

std::string element_coordinates(const std::vector<std::string>& dims, std::string_view type) {
  std::string text;
  if (dims.size() > 1) text += fmt::format("{} rest = n;\n", type);
  for (size_t axis = dims.size(); axis-- > 1;)
    text += fmt::format("const {0} i{1} = rest % {0}({2});\nrest /= {0}({2});\n", type, axis,
                        dims[axis]);
  if (!dims.empty())
    text += fmt::format("const {} i0 = {};\n", type, dims.size() > 1 ? "rest" : "n");
  return text;
}

std::string element_loop(const std::vector<std::string>& dims, bool small, std::string_view from,
                         std::string_view to, const std::string& body) {
  const char* const type = small ? "i32" : "i64";
  std::string text = fmt::format("for ({0} n = {0}({1} + thread); n < {2}; n += {0}(threads)) {{\n",
                                 type, from, to);
  return text + element_coordinates(dims, type) + body + "}\n";
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
