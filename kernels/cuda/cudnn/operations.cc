#include "anneal/kernels/cuda/cudnn/operations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace anneal::cuda {
namespace {

std::string type_name(cudnnDataType_t dtype) {
  switch (dtype) {
    case CUDNN_DATA_FLOAT:
      return "f32";
    case CUDNN_DATA_HALF:
      return "f16";
    case CUDNN_DATA_BFLOAT16:
      return "bf16";
    case CUDNN_DATA_INT8:
      return "i8";
    case CUDNN_DATA_UINT8:
      return "u8";
    case CUDNN_DATA_INT32:
      return "i32";
    case CUDNN_DATA_INT64:
      return "i64";
    case CUDNN_DATA_BOOLEAN:
      return "bool";
  }
  return "?";
}

std::string mode_name(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return "add";
    case CUDNN_POINTWISE_MUL:
      return "mul";
    case CUDNN_POINTWISE_MIN:
      return "min";
    case CUDNN_POINTWISE_MAX:
      return "max";
    case CUDNN_POINTWISE_SQRT:
      return "sqrt";
    case CUDNN_POINTWISE_DIV:
      return "div";
    case CUDNN_POINTWISE_POW:
      return "pow";
    case CUDNN_POINTWISE_SUB:
      return "sub";
    case CUDNN_POINTWISE_ABS:
      return "abs";
    case CUDNN_POINTWISE_CEIL:
      return "ceil";
    case CUDNN_POINTWISE_COS:
      return "cos";
    case CUDNN_POINTWISE_EXP:
      return "exp";
    case CUDNN_POINTWISE_FLOOR:
      return "floor";
    case CUDNN_POINTWISE_LOG:
      return "log";
    case CUDNN_POINTWISE_NEG:
      return "neg";
    case CUDNN_POINTWISE_SIN:
      return "sin";
    case CUDNN_POINTWISE_TAN:
      return "tan";
    case CUDNN_POINTWISE_ERF:
      return "erf";
    case CUDNN_POINTWISE_IDENTITY:
      return "identity";
    case CUDNN_POINTWISE_RELU_FWD:
      return "relu";
    case CUDNN_POINTWISE_TANH_FWD:
      return "tanh";
    case CUDNN_POINTWISE_SIGMOID_FWD:
      return "sigmoid";
    case CUDNN_POINTWISE_GELU_FWD:
      return "gelu";
    case CUDNN_POINTWISE_SWISH_FWD:
      return "swish";
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
      return "gelu_tanh";
    case CUDNN_POINTWISE_CMP_EQ:
      return "eq";
    case CUDNN_POINTWISE_CMP_GT:
      return "gt";
    case CUDNN_POINTWISE_CMP_GE:
      return "ge";
    case CUDNN_POINTWISE_CMP_LT:
      return "lt";
    case CUDNN_POINTWISE_CMP_LE:
      return "le";
    case CUDNN_POINTWISE_LOGICAL_AND:
      return "and";
    case CUDNN_POINTWISE_LOGICAL_OR:
      return "or";
    case CUDNN_POINTWISE_LOGICAL_NOT:
      return "not";
    case CUDNN_POINTWISE_GEN_INDEX:
      return "index";
    case CUDNN_POINTWISE_BINARY_SELECT:
      return "select";
  }
  return "?";
}

std::string operation_name(const CudnnOperation& operation) {
  switch (operation.kind) {
    case OperationKind::kConv:
      return "conv";
    case OperationKind::kConvTranspose:
      return "conv_transpose";
    case OperationKind::kMatMul:
      return "matmul";
    case OperationKind::kPointwise:
      return mode_name(operation.mode);
    case OperationKind::kReduction:
      return operation.reduction == CUDNN_REDUCE_TENSOR_MAX ? "reduce_max" : "reduce_sum";
  }
  return "?";
}

std::string tensor_line(const CudnnTensor& tensor, size_t index) {
  std::string line = fmt::format("%{}: {}[{}]", index, type_name(tensor.dtype),
                                 fmt::join(tensor.dims.span(), ","));
  switch (tensor.place) {
    case TensorPlace::kInput:
      return line + fmt::format(" strides [{}] of {} bytes, input {}\n",
                                fmt::join(tensor.strides.span(), ","), tensor.alignment,
                                tensor.index);
    case TensorPlace::kOutput:
      return line + fmt::format(" strides [{}] of {} bytes, output\n",
                                fmt::join(tensor.strides.span(), ","), tensor.alignment);
    case TensorPlace::kRounded:
      return line + fmt::format(" of input {} in 16 bits\n", tensor.index);
    case TensorPlace::kVirtual:
      return line + "\n";
    case TensorPlace::kValue:
      return line + fmt::format(" = {}\n", tensor.value);
  }
  return line;
}

std::string operation_line(const CudnnOperation& operation) {
  std::string operands;
  for (const TensorIndex each : {operation.a, operation.b, operation.t})
    if (each != kNoTensor) operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", each);
  std::string line = fmt::format("%{} = {}({})", operation.y, operation_name(operation), operands);
  if (!operation.strides.empty())
    line += fmt::format(" strides=[{}] pads=[{}]..[{}] dilations=[{}]",
                        fmt::join(operation.strides, ","), fmt::join(operation.pads_begin, ","),
                        fmt::join(operation.pads_end, ","), fmt::join(operation.dilations, ","));
  if (operation.lower) line += fmt::format(" from {}", *operation.lower);
  if (operation.upper) line += fmt::format(" to {}", *operation.upper);
  if (operation.beta) line += fmt::format(" beta={}", *operation.beta);
  if (operation.axis) line += fmt::format(" axis={}", *operation.axis);
  if (operation.math != CUDNN_DATA_FLOAT) line += " in " + type_name(operation.math);
  return line + "\n";
}

}  // namespace

TensorIndex Operations::add_virtual(const CudnnTensor& like, const Dims& dims,
                                    cudnnDataType_t dtype) {
  return add({.dtype = dtype, .dims = dims, .strides = dense_in_order_of(dims, like.strides)});
}

TensorIndex Operations::add_value(float value, int rank) {
  const Dims ones = Dims::filled(rank, 1);
  return add({.place = TensorPlace::kValue,
              .value = value,
              .dims = ones,
              .strides = ones,
              .alignment = 4});
}

std::string to_string(const Operations& graph) {
  std::string text;
  for (size_t i = 0; i < graph.tensors.size(); ++i) text += tensor_line(graph.tensors[i], i);
  for (const CudnnOperation& operation : graph.operations) text += operation_line(operation);
  return text;
}

std::optional<cudnnDataType_t> cudnn_type_of(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return CUDNN_DATA_FLOAT;
    case DataType::kF16:
      return CUDNN_DATA_HALF;
    case DataType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case DataType::kI8:
      return CUDNN_DATA_INT8;
    case DataType::kU8:
      return CUDNN_DATA_UINT8;
    case DataType::kI32:
      return CUDNN_DATA_INT32;
    case DataType::kI64:
      return CUDNN_DATA_INT64;
    case DataType::kBool:
      return CUDNN_DATA_BOOLEAN;
    default:
      return std::nullopt;
  }
}

Dims dense_in_order_of(const Dims& dims, const Dims& strides) {
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  // An axis of one element has any stride: it keeps its place among the others.
  std::ranges::stable_sort(order, [&](int a, int b) { return strides[a] > strides[b]; });
  Dims dense = Dims::filled(dims.rank(), 1);
  int64_t next = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    dense[*axis] = next;
    next *= std::max<int64_t>(dims[*axis], 1);
  }
  return dense;
}

int64_t alignment_of(const Dims& dims, const Dims& strides, DataType dtype) {
  constexpr int64_t kMost = 16;
  int64_t count = 1, span = 1, largest = 1, common = kMost;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (dims[axis] == 1) continue;
    count *= dims[axis];
    span += (dims[axis] - 1) * strides[axis];
    largest = std::max(largest, strides[axis]);
    if (strides[axis] > 1) common = std::gcd(common, strides[axis]);
  }
  // A dense tensor may be a part of a larger one, along its slowest axis.
  const bool is_dense = count == span;
  const int64_t elements = !is_dense ? common : largest == 1 ? kMost : std::gcd(kMost, largest);
  return std::min(kMost, elements * static_cast<int64_t>(size_of(dtype)));
}

}  // namespace anneal::cuda
