#include "anneal/kernels/cuda/kernels/selecting_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"

namespace anneal::cuda {
namespace {

constexpr int64_t kStateAlignment = 64;
// The least number of elements of a group, and the largest number of groups.
constexpr int64_t kLeastOfGroup = int64_t{4} * kSelectThreads, kMostGroups = 1024;

class SelectingKernel final : public Kernel {
 public:
  SelectingKernel(SelectParts parts, Device& device) : parts_(std::move(parts)), device_(device) {}

  std::unique_ptr<DataDependentDims> find(std::span<const TensorView> inputs, DeviceStream& stream,
                                          ThreadTeam&) const override {
    const int64_t groups = parts_.groups(inputs);
    std::vector<int64_t> counts(static_cast<size_t>(groups));
    if (groups != 0) {
      std::byte* const memory = this->memory(inputs, stream);
      Arguments arguments;
      add_inputs(arguments, inputs.first(parts_.inputs));
      add_memory(arguments, memory, groups);
      if (parts_.limits) parts_.limits(arguments, inputs.first(parts_.op_inputs));
      launch_groups(stream, *parts_.count, arguments, values_of(parts_.count_sources, inputs, {}),
                    groups);
      cuda::copy(stream, reinterpret_cast<std::byte*>(counts.data()), memory,
                 counts.size() * sizeof(int64_t));
      stream.wait();
    }
    auto found = std::make_unique<DataDependentDims>();
    found->dims = {parts_.dims(inputs, std::accumulate(counts.begin(), counts.end(), int64_t{0}))};
    return found;
  }
  void launch(const LaunchArgs& args) const override {
    if (count(args.outputs[0].dims) == 0) return;
    const int64_t groups = parts_.groups(args.inputs);
    Arguments arguments;
    add_inputs(arguments, args.inputs.first(parts_.inputs));
    add_inputs(arguments, args.inputs.subspan(parts_.op_inputs));
    for (const TensorView& output : args.outputs) arguments.add(output);
    add_memory(arguments, memory(args.inputs, args.stream), groups);
    launch_groups(args.stream, *parts_.write, arguments,
                  values_of(parts_.write_sources, args.inputs, args.outputs), groups);
  }

 private:
  size_t bytes_of_counts(int64_t groups) const {
    return static_cast<size_t>(align_up(groups * int64_t{sizeof(int64_t)}, kStateAlignment));
  }
  // Of counts and state, which stay there from find() to launch().
  std::byte* memory(std::span<const TensorView> inputs, DeviceStream& stream) const {
    const int64_t state = parts_.state ? parts_.state(inputs) : 0;
    return found_memory(
        stream, device_,
        bytes_of_counts(parts_.groups(inputs)) + static_cast<size_t>(state) * sizeof(int32_t));
  }
  static void add_inputs(Arguments& arguments, std::span<const TensorView> inputs) {
    for (const TensorView& input : inputs) arguments.add(input);
  }
  void add_memory(Arguments& arguments, std::byte* memory, int64_t groups) const {
    arguments.add(memory);
    if (parts_.state) arguments.add(memory + bytes_of_counts(groups));
    arguments.add(groups);
  }
  void launch_groups(DeviceStream& stream, const Function& function, Arguments& arguments,
                     const std::vector<int64_t>& values, int64_t groups) const {
    for (const int64_t value : values) arguments.add(value);
    cuda::launch(
        stream, function,
        {.grid = {resident_blocks_for(spec_of(device_), groups * kSelectThreads, kSelectThreads), 1,
                  1},
         .block = {kSelectThreads, 1, 1}},
        arguments);
  }

  SelectParts parts_;
  Device& device_;  // which lives longer
};

}  // namespace

int64_t groups_for(int64_t elements) {
  return std::min(ceil_div(elements, kLeastOfGroup), kMostGroups);
}

KernelResult make_selecting_kernel(SelectParts parts, const Request& request) {
  if (request.inputs.size() + request.outputs.size() + parts.write_sources.size() + 3 >
      Arguments::kMost)
    return refuse("more operands than a launch takes");
  return std::make_unique<SelectingKernel>(std::move(parts), request.device);
}

FunctionText select_text(const SelectText& text) {
  FunctionText function{text.family, text.headers, {}};
  function.text = fmt::format(
      "{}KERNEL($name, {})({}{}) {{\nSHARED(i64, partial, {});\n{}"
      "for (i64 group = blockIdx.x; group < groups; group += gridDim.x) {{\n{}}}\n}}\n",
      text.definitions, kSelectThreads, text.inputs, text.parameters, kSelectThreads / 32 * 4,
      text.statements, text.body);
  return function;
}

}  // namespace anneal::cuda
