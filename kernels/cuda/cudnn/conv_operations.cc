#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/kernels/cuda/cudnn/layer_operations.h"

namespace anneal::cuda {
namespace {

// With an axis of one element in front of the only spatial one: cuDNN has two or three.
Dims with_two_spatial_axes(const Dims& dims, int64_t inserted) {
  if (dims.rank() != 3) return dims;
  return {dims[0], dims[1], inserted, dims[2]};
}
std::vector<int64_t> with_two_spatial_axes(std::vector<int64_t> values, int64_t inserted) {
  if (values.size() == 1) values.insert(values.begin(), inserted);
  return values;
}

Result<CudnnTensor> conv_tensor(const Operand& operand, TensorPlace place, int index) {
  const auto dtype = cudnn_type_of(operand.type.dtype);
  if (!dtype) return refuse(fmt::format("cuDNN has no type {}", to_string(operand.type.dtype)));
  const Dims dims = dims_of(operand.type.shape), strides = dims_of(operand.strides);
  CudnnTensor tensor{.place = place, .index = index, .dtype = *dtype};
  tensor.alignment = alignment_of(dims, strides, operand.type.dtype);
  tensor.dims = with_two_spatial_axes(dims, 1);
  // The inserted axis has the stride of a whole row.
  const int64_t row = dims.rank() == 3 ? std::max<int64_t>(dims[2] * strides[2], 1) : 0;
  tensor.strides = with_two_spatial_axes(strides, row);
  return tensor;
}

std::string why_no_conv_types(const Request& request) {
  const DataType x = request.inputs[0].type.dtype, w = request.inputs[1].type.dtype;
  if (x != w) return "operands of different types";
  switch (x) {
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kI8:
      return {};
    default:
      return fmt::format("only f32, f16, bf16 and i8, not {}", to_string(x));
  }
}

// Operands of the epilogue have the axes of the output.
GraphAxes conv_axes(const CudnnTensor& y, EpilogueForm form) {
  return {.dims = y.dims, .form = form, .place = [](const Dims& dims, const Dims& strides) {
            return Result<std::pair<Dims, Dims>>(
                std::pair(with_two_spatial_axes(dims, 1), with_two_spatial_axes(strides, 0)));
          }};
}

bool is_in_order(const CudnnTensor& tensor, bool channels_last) {
  std::vector<int> order;  // axes, the outermost first
  for (int axis = 0; axis < tensor.dims.rank(); ++axis)
    if (!channels_last || axis != 1) order.push_back(axis);
  if (channels_last) order.push_back(1);
  int64_t outer = std::numeric_limits<int64_t>::max();
  for (const int axis : order) {
    if (tensor.strides[axis] > outer) return false;
    if (tensor.dims[axis] != 1) outer = tensor.strides[axis];
  }
  return true;
}

// With axes in another order, or in different orders, cuDNN computes wrong numbers and reports
// success (9.14 on an H100, bench/results/2026-11-26-h100), also where only the stride of an axis
// of one element is out of order (9.19 on an H200, bench/results/2026-11-27-h200). Elements may lie
// apart.
std::string why_no_order(const Operations& graph) {
  for (const bool channels_last : {false, true})
    if (std::ranges::all_of(graph.tensors, [&](const CudnnTensor& each) {
          return each.place == TensorPlace::kValue || is_in_order(each, channels_last);
        }))
      return {};
  return "tensors that are not all row-major or all channels-last";
}

// What Conv and ConvTranspose have in common.
template <class T>
Result<Operations> convolution_operations(const T& op, const Request& request, OperationKind kind,
                                          EpilogueForm form) {
  if (std::string reason = why_no_operations(request); !reason.empty())
    return refuse(std::move(reason));
  if (std::string reason = why_no_conv_types(request); !reason.empty())
    return refuse(std::move(reason));
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  const auto is_negative = [](int64_t pad) { return pad < 0; };
  if (std::ranges::any_of(op.pads_begin, is_negative) ||
      std::ranges::any_of(op.pads_end, is_negative))
    return refuse("padding below zero");
  Operations graph;
  const auto x = conv_tensor(request.inputs[0], TensorPlace::kInput, 0);
  const auto w = conv_tensor(request.inputs[1], TensorPlace::kInput, 1);
  const auto y = conv_tensor(request.outputs[0], TensorPlace::kOutput, 0);
  for (const auto& tensor : {x, w, y})
    if (!tensor) return refuse(tensor.reason());
  CudnnOperation conv{.kind = kind,
                      .math = x->dtype == CUDNN_DATA_INT8 ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT};
  conv.a = graph.add(*x);
  conv.b = graph.add(*w);
  conv.strides = with_two_spatial_axes(op.strides, 1);
  conv.pads_begin = with_two_spatial_axes(op.pads_begin, 0);
  conv.pads_end = with_two_spatial_axes(op.pads_end, 0);
  conv.dilations = with_two_spatial_axes(op.dilations, 1);
  auto whole = with_epilogue(std::move(graph), conv, *y, request, conv_axes(*y, form));
  if (!whole) return whole;
  if (std::string reason = why_no_order(*whole); !reason.empty()) return refuse(std::move(reason));
  return whole;
}

}  // namespace

Result<Operations> conv_operations(const Conv& op, const Request& request, EpilogueForm form) {
  if (!op.split.empty()) return refuse("several outputs");
  if (!is_zero_or_absent(request, 2) || !is_zero_or_absent(request, 3))
    return refuse("a zero point that is not 0");
  return convolution_operations(op, request, OperationKind::kConv, form);
}

// cuDNN has it as the gradient of a convolution whose output is x. Its weights are [K,C/groups]
// of that convolution, as ours are. Output padding shows in the size of the output alone.
Result<Operations> conv_transpose_operations(const ConvTranspose& op, const Request& request,
                                             EpilogueForm form) {
  return convolution_operations(op, request, OperationKind::kConvTranspose, form);
}

}  // namespace anneal::cuda
