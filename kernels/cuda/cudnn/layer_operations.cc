#include "anneal/kernels/cuda/cudnn/layer_operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/cost/rounded_constant.h"
#include "anneal/kernels/cuda/cudnn/program_operations.h"

namespace anneal::cuda {
namespace {

// An epilogue's operand with the axes of the layer's output: axes of one element in front, and
// strides 0 where it is broadcast.
std::pair<Dims, Dims> broadcast_operand(const Operand& operand, int rank) {
  const Shape &shape = operand.type.shape, &strides = operand.strides;
  Dims dims = Dims::filled(rank, 1), steps = Dims::filled(rank, 0);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int to = rank - shape.rank() + axis;
    dims[to] = shape[axis].value();
    if (dims[to] != 1) steps[to] = strides[axis].value();
  }
  return {dims, steps};
}

// cuDNN takes no stride of 0: an axis of one element has that of the output, in proportion.
Dims with_strides(const Dims& dims, const Dims& strides, const Dims& output_strides) {
  Dims all = strides;
  const Dims dense = dense_in_order_of(dims, output_strides);
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] == 1) all[axis] = dense[axis];
  return all;
}

// Inputs of the epilogue as tensors, each once.
class EpilogueInputs {
 public:
  EpilogueInputs(Operations& graph, const Request& request, const GraphAxes& axes,
                 const Dims& output_strides)
      : graph_(graph),
        request_(request),
        axes_(axes),
        output_strides_(output_strides),
        known_(request.inputs.size(), kNoTensor) {}

  Result<TensorIndex> operator()(int input) {
    const size_t index = static_cast<size_t>(request_.op_input_count + input - 1);
    if (known_[index] != kNoTensor) return known_[index];
    const Operand& operand = request_.inputs[index];
    const auto dtype = cudnn_type_of(operand.type.dtype);
    if (!dtype) return refuse(fmt::format("cuDNN has no type {}", to_string(operand.type.dtype)));
    if (operand.type.dtype == DataType::kBool) return refuse(kNoBools);
    const auto [dims, strides] = broadcast_operand(operand, request_.outputs[0].type.shape.rank());
    const auto placed = axes_.place(dims, strides);
    if (!placed) return refuse(placed.reason());
    CudnnTensor tensor{.place = TensorPlace::kInput,
                       .index = static_cast<int>(index),
                       .dtype = *dtype,
                       .dims = placed->first};
    tensor.strides = with_strides(placed->first, placed->second, output_strides_);
    tensor.alignment = alignment_of(tensor.dims, tensor.strides, operand.type.dtype);
    if (axes_.form == EpilogueForm::kRewritten) round_bias(tensor, operand);
    return known_[index] = graph_.add(tensor);
  }

 private:
  void round_bias(CudnnTensor& tensor, const Operand& operand) const {
    const DataType product = request_.inputs[0].type.dtype;
    const bool is_16_bit = product == DataType::kF16 || product == DataType::kBF16;
    if (!is_16_bit || operand.type.dtype != DataType::kF32 || operand.constant == nullptr ||
        tensor.dims == axes_.dims ||
        dims_of(operand.strides) != row_major_strides(dims_of(operand.type.shape)))
      return;
    auto bytes = rounded_constant(operand.constant->as<float>(), product);
    if (bytes.empty()) return;
    tensor.place = TensorPlace::kRounded;
    tensor.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    tensor.dtype = *cudnn_type_of(product);
    tensor.alignment = 16;
  }

  Operations& graph_;
  const Request& request_;
  const GraphAxes& axes_;
  const Dims output_strides_;
  std::vector<TensorIndex> known_;  // by input of the layer
};

bool is_constant_size(const Operand& operand) {
  return !operand.present || (known(operand.type.shape) && known(operand.strides));
}

}  // namespace

std::string why_no_operations(const Request& request) {
  const auto has_open_size = [](std::span<const Operand> operands) {
    return !std::ranges::all_of(operands, is_constant_size);
  };
  if (has_open_size(request.inputs) || has_open_size(request.outputs))
    return "sizes that are known only at run time";
  const auto is_empty = [](const Operand& operand) {
    return operand.present && count(dims_of(operand.type.shape)) == 0;
  };
  if (std::ranges::any_of(request.inputs, is_empty) ||
      std::ranges::any_of(request.outputs, is_empty))
    return "no elements";
  if (request.outputs.size() != 1) return "several outputs";
  return {};
}

bool is_zero_or_absent(const Request& request, size_t input) {
  if (input >= static_cast<size_t>(request.op_input_count)) return true;
  const Operand& operand = request.inputs[input];
  if (!operand.present) return true;
  return operand.constant != nullptr &&
         std::ranges::all_of(operand.constant->bytes(),
                             [](std::byte each) { return each == std::byte{0}; });
}

Result<Operations> with_epilogue(Operations graph, CudnnOperation op, const CudnnTensor& output,
                                 const Request& request, const GraphAxes& axes) {
  const bool is_plain = request.epilogues.empty() || request.epilogues[0].empty();
  if (is_plain) {
    op.y = graph.add(output);
    graph.operations.push_back(op);
    return graph;
  }
  const Program& program = request.epilogues[0];
  if (op.math == CUDNN_DATA_INT32)
    if (std::string reason = why_bits_may_differ(program); !reason.empty())
      return refuse(std::move(reason));
  const TensorIndex accumulator = graph.add_virtual(output, output.dims, op.math);
  op.y = accumulator;
  graph.operations.push_back(op);
  const TensorIndex y = graph.add(output);
  EpilogueInputs inputs(graph, request, axes, output.strides);
  const auto translated = add_program(graph, program,
                                      {.accumulator = accumulator,
                                       .input = [&](int input) { return inputs(input); },
                                       .output = y,
                                       .residual_first = axes.form == EpilogueForm::kRewritten});
  if (!translated) return refuse(translated.reason());
  return graph;
}

}  // namespace anneal::cuda
