#include <fmt/format.h>

#include <algorithm>

#include "anneal/kernels/cuda/cudnn/layer_operations.h"

namespace anneal::cuda {
namespace {

using Placed = std::pair<Dims, Dims>;  // sizes and strides

// The axes [begin, end) as one; nullopt if no stride serves all of it.
std::optional<std::pair<int64_t, int64_t>> joined(const Dims& dims, const Dims& strides, int begin,
                                                  int end) {
  int64_t size = 1, stride = 0;
  for (int axis = end; axis-- > begin;) {
    if (dims[axis] == 1) continue;
    if (size == 1) {
      stride = strides[axis];
    } else if (strides[axis] != size * stride) {
      return std::nullopt;
    }
    size *= dims[axis];
  }
  return std::pair(size, stride);
}

// A tensor of rank 3 from one whose axes are joined to [0, batch), [batch, rows), [rows, rank).
Result<Placed> three_axes(const Dims& dims, const Dims& strides, int batch, int rows) {
  const auto first = joined(dims, strides, 0, batch), second = joined(dims, strides, batch, rows),
             third = joined(dims, strides, rows, dims.rank());
  if (!first || !second || !third) return refuse("leading axes that no single stride serves");
  return Placed{{first->first, second->first, third->first},
                {first->second, second->second, third->second}};
}

bool is_broadcast_to(const Dims& dims, const Dims& whole) {
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] != 1 && dims[axis] != whole[axis]) return false;
  return true;
}

// Axes of one element in front, up to `rank`.
Placed with_rank(const Dims& dims, const Dims& strides, int rank) {
  Dims all = Dims::filled(rank, 1), steps = Dims::filled(rank, 0);
  for (int axis = 0; axis < dims.rank(); ++axis) {
    const int to = rank - dims.rank() + axis;
    all[to] = dims[axis];
    steps[to] = strides[axis];
  }
  return {all, steps};
}

Placed transposed(Placed placed) {
  const int rank = placed.first.rank();
  std::swap(placed.first[rank - 2], placed.first[rank - 1]);
  std::swap(placed.second[rank - 2], placed.second[rank - 1]);
  return placed;
}

// Where the leading axes of the output go: they are batches, or rows if b lacks them.
struct ProductAxes {
  int rank = 0;   // of the output
  int batch = 0;  // axes before this one are batches, those behind it up to the last one rows
};

Result<ProductAxes> product_axes(const Dims& a, const Dims& b, int rank) {
  const auto is_one = [](const Dims& dims) {
    return std::all_of(dims.begin(), dims.end() - 2, [](int64_t size) { return size == 1; });
  };
  if (is_one(b)) return ProductAxes{rank, 0};
  for (int axis = 0; axis < rank - 2; ++axis)
    if (a[axis] != b[axis]) return refuse("batches of one operand that the other lacks");
  return ProductAxes{rank, rank - 2};
}

Result<CudnnTensor> matmul_tensor(const Placed& placed, DataType dtype, TensorPlace place,
                                  int index) {
  const auto type = cudnn_type_of(dtype);
  if (!type) return refuse(fmt::format("cuDNN has no type {}", to_string(dtype)));
  CudnnTensor tensor{.place = place, .index = index, .dtype = *type, .dims = placed.first};
  tensor.strides = placed.second;
  // An axis of one element has the stride that it would have if the tensor were dense.
  const bool is_column_major = tensor.strides[1] == 1 && tensor.dims[1] != 1;
  const int last = is_column_major ? 1 : 2, before = is_column_major ? 2 : 1;
  if (tensor.dims[last] == 1) tensor.strides[last] = 1;
  if (tensor.dims[before] == 1)
    tensor.strides[before] = std::max<int64_t>(tensor.dims[last] * tensor.strides[last], 1);
  if (tensor.dims[0] == 1)
    tensor.strides[0] =
        std::max(tensor.dims[1] * tensor.strides[1], tensor.dims[2] * tensor.strides[2]);
  tensor.alignment = alignment_of(tensor.dims, tensor.strides, dtype);
  return tensor;
}

std::string why_no_matmul_types(const Request& request) {
  const DataType a = request.inputs[0].type.dtype, b = request.inputs[1].type.dtype;
  if (request.op_input_count > 4 && request.inputs[4].present) return "weights with scales";
  if (a != b) return "operands of different types";
  // No note of such an engine says so (9.19 on an H200, bench/results/2026-11-27-h200).
  if (a == DataType::kF32) return "cuDNN rounds the operands of f32 to TF32";
  if (a != DataType::kF16 && a != DataType::kBF16 && a != DataType::kI8)
    return fmt::format("only f16, bf16 and i8, not {}", to_string(a));
  return {};
}

Placed operand_of(const Operand& operand, int rank, bool is_transposed) {
  const Placed placed = with_rank(dims_of(operand.type.shape), dims_of(operand.strides), rank);
  return is_transposed ? transposed(placed) : placed;
}

}  // namespace

Result<Operations> matmul_operations(const MatMul& op, const Request& request, EpilogueForm form) {
  if (std::string reason = why_no_operations(request); !reason.empty())
    return refuse(std::move(reason));
  if (!op.split.empty()) return refuse("several outputs");
  if (std::string reason = why_no_matmul_types(request); !reason.empty())
    return refuse(std::move(reason));
  if (!is_zero_or_absent(request, 2) || !is_zero_or_absent(request, 3))
    return refuse("a zero point that is not 0");
  const int rank = request.outputs[0].type.shape.rank();
  const Placed a = operand_of(request.inputs[0], rank, op.transpose_a),
               b = operand_of(request.inputs[1], rank, op.transpose_b),
               y = operand_of(request.outputs[0], rank, false);
  const auto axes = product_axes(a.first, b.first, rank);
  if (!axes) return refuse(axes.reason());
  const int batch = axes->batch;
  const auto place = [&](const Placed& placed) {
    return three_axes(placed.first, placed.second, batch, rank - 1);
  };
  const auto a3 = place(a), y3 = place(y);
  const auto b3 = three_axes(b.first, b.second, rank - 2, rank - 1);
  for (const auto& each : {a3, b3, y3})
    if (!each) return refuse(each.reason());
  const DataType dtype = request.inputs[0].type.dtype;
  const auto left = matmul_tensor(*a3, dtype, TensorPlace::kInput, 0);
  const auto right = matmul_tensor(*b3, dtype, TensorPlace::kInput, 1);
  const auto output = matmul_tensor(*y3, request.outputs[0].type.dtype, TensorPlace::kOutput, 0);
  for (const auto& each : {left, right, output})
    if (!each) return refuse(each.reason());
  Operations graph;
  CudnnOperation product{.kind = OperationKind::kMatMul,
                         .math = dtype == DataType::kI8 ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT};
  product.a = graph.add(*left);
  product.b = graph.add(*right);
  const GraphAxes graph_axes{
      .dims = output->dims,
      .form = form,
      .place = [batch, rank, whole = output->dims](const Dims& dims, const Dims& strides) {
        Result<Placed> placed = three_axes(dims, strides, batch, rank - 1);
        if (placed && !is_broadcast_to(placed->first, whole))
          return Result<Placed>(refuse("an operand that is broadcast along some leading axes"));
        return placed;
      }};
  return with_epilogue(std::move(graph), product, *output, request, graph_axes);
}

}  // namespace anneal::cuda
