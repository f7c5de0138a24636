// softmax(score(q k^T)) v in the operations that cuDNN recognizes as attention.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/kernels/cuda/cudnn/layer_operations.h"
#include "anneal/kernels/cuda/cudnn/program_operations.h"

namespace anneal::cuda {
namespace {

CudnnTensor heads(const Operand& operand, TensorPlace place, int index) {
  const Dims dims = dims_of(operand.type.shape);
  CudnnTensor tensor{
      .place = place, .index = index, .dtype = *cudnn_type_of(operand.type.dtype), .dims = dims};
  tensor.strides = dims_of(operand.strides);
  tensor.alignment = alignment_of(dims, tensor.strides, operand.type.dtype);
  return tensor;
}

// [B,G,S,D] as [B,G,D,S].
CudnnTensor transposed_heads(CudnnTensor tensor) {
  std::swap(tensor.dims[2], tensor.dims[3]);
  std::swap(tensor.strides[2], tensor.strides[3]);
  return tensor;
}

// Whether masks by coordinates leave each row the key of its own number, where the coordinates are
// equal: less is false there, less or equal is true. False if they are used in another way.
bool rows_see_themselves(const Program& score) {
  const auto code = score.code();
  // Of a row or of a key.
  const auto is_index = [&](uint16_t reg) { return code[reg].opcode == Opcode::kIndex; };
  const auto is_hidden = [&](uint16_t reg) {
    return code[reg].opcode == Opcode::kConstant && code[reg].type == RegisterType::kF32 &&
           Scalar{code[reg].immediate}.as<float>() == -std::numeric_limits<float>::infinity();
  };
  for (const Instruction& each : code) {
    const bool is_comparison = each.opcode == Opcode::kLess || each.opcode == Opcode::kLessEqual;
    if (each.opcode == Opcode::kSelect) {
      const Instruction& condition = code[each.operands[0]];
      const bool compares_indices =
          (condition.opcode == Opcode::kLess || condition.opcode == Opcode::kLessEqual) &&
          is_index(condition.operands[0]) && is_index(condition.operands[1]);
      const bool is_true = condition.opcode == Opcode::kLessEqual;
      const auto axis = [&](int i) { return code[condition.operands[size_t(i)]].immediate; };
      if (compares_indices && axis(0) + axis(1) != 2 + 3) return false;
      if (compares_indices && is_hidden(each.operands[is_true ? 1 : 2])) return false;
      continue;
    }
    for (int i = 0; i < operand_count(each.opcode); ++i) {
      const uint16_t operand = each.operands[static_cast<size_t>(i)];
      const bool is_of_indices = is_index(operand) && !is_comparison;
      const bool is_condition = code[operand].type == RegisterType::kBool;
      if (is_of_indices || is_condition) return false;
    }
    if (is_comparison && is_index(each.operands[0]) != is_index(each.operands[1])) return false;
  }
  return true;
}

// Whether a row may see nothing: then ours gives 0 or NaN, and cuDNN's result is not documented.
bool may_hide_rows(const Attention& op, const Request& request) {
  if (op.score.empty()) return false;
  if (request.op_input_count > 3)
    for (size_t i = 3; i < static_cast<size_t>(request.op_input_count); ++i)
      if (request.inputs[i].present && request.inputs[i].type.shape.rank() > 0 &&
          (count(dims_of(request.inputs[i].type.shape)) > 1 ||
           request.inputs[i].type.dtype == DataType::kBool))
        return true;
  if (!op.score.uses_index()) return false;
  // Rows see themselves if there are as many keys as queries.
  const Shape &q = request.inputs[0].type.shape, &k = request.inputs[1].type.shape;
  return q[2].value() > k[2].value() || !rows_see_themselves(op.score);
}

// Whether rows are whole groups of 16 bytes without gaps. The search for engines of some other
// tensors ended the process inside cuDNN (9.19 on an H200, bench/results/2026-11-27-h200-2).
bool has_whole_rows(const Operand& operand) {
  constexpr int64_t kElements = 8;  // of 16 bits in 16 bytes
  const Dims dims = dims_of(operand.type.shape), strides = dims_of(operand.strides);
  for (int axis = 0; axis < 3; ++axis)
    if (dims[axis] != 1 && strides[axis] % kElements != 0) return false;
  return strides[3] == 1 && dims[3] % kElements == 0;
}

std::string why_no_attention(const Attention& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype != DataType::kF16 && dtype != DataType::kBF16) return "only f16 and bf16";
  for (const size_t i : {size_t{1}, size_t{2}})
    if (request.inputs[i].type.dtype != dtype) return "operands of different types";
  if (request.outputs[0].type.dtype != dtype) return "an output of another type";
  for (const Operand* each :
       {&request.inputs[0], &request.inputs[1], &request.inputs[2], &request.outputs[0]})
    if (!has_whole_rows(*each)) return "rows that are not whole 16 bytes without gaps";
  if (!request.epilogues.empty() && !request.epilogues[0].empty() &&
      !request.epilogues[0].is_identity())
    return "an epilogue behind attention";
  if (op.hidden_is_zero && may_hide_rows(op, request))
    return "a mask that may hide a whole row, whose result is 0";
  return {};
}

class AttentionGraph {
 public:
  AttentionGraph(const Attention& op, const Request& request) : op_(op), request_(request) {}

  Result<Operations> run() {
    const TensorIndex q = graph_.add(heads(request_.inputs[0], TensorPlace::kInput, 0));
    const TensorIndex k =
        graph_.add(transposed_heads(heads(request_.inputs[1], TensorPlace::kInput, 1)));
    const TensorIndex v = graph_.add(heads(request_.inputs[2], TensorPlace::kInput, 2));
    const Dims of_q = tensor(q).dims;
    scores_ = {of_q[0], of_q[1], of_q[2], tensor(k).dims[3]};
    const TensorIndex product = virtual_of(scores_);
    graph_.operations.push_back({.kind = OperationKind::kMatMul, .a = q, .b = k, .y = product});
    TensorIndex score = product;
    if (!op_.score.empty()) {
      const auto made = add_program(graph_, op_.score,
                                    {.accumulator = product,
                                     .input = [&](int input) { return score_input(input); },
                                     .has_axes = true});
      if (!made) return refuse(made.reason());
      score = *made;
    }
    const TensorIndex weights = softmax(score);
    const TensorIndex y = graph_.add(heads(request_.outputs[0], TensorPlace::kOutput, 0));
    graph_.operations.push_back({.kind = OperationKind::kMatMul, .a = weights, .b = v, .y = y});
    return std::move(graph_);
  }

 private:
  const CudnnTensor& tensor(TensorIndex index) const {
    return graph_.tensors[static_cast<size_t>(index)];
  }
  TensorIndex virtual_of(const Dims& dims, cudnnDataType_t dtype = CUDNN_DATA_FLOAT) {
    return graph_.add({.dtype = dtype, .dims = dims, .strides = row_major_strides(dims)});
  }
  TensorIndex reduced(TensorIndex x, cudnnReduceTensorOp_t how) {
    Dims dims = scores_;
    dims[3] = 1;
    const TensorIndex y = virtual_of(dims);
    graph_.operations.push_back(
        {.kind = OperationKind::kReduction, .a = x, .y = y, .reduction = how});
    return y;
  }
  TensorIndex pointwise(cudnnPointwiseMode_t mode, TensorIndex a, TensorIndex b,
                        cudnnDataType_t dtype = CUDNN_DATA_FLOAT) {
    const TensorIndex y = virtual_of(scores_, dtype);
    graph_.operations.push_back({.a = a, .b = b, .y = y, .mode = mode});
    return y;
  }

  TensorIndex of_rows(cudnnPointwiseMode_t mode, TensorIndex a, TensorIndex b) {
    const TensorIndex y = virtual_of(tensor(a).dims);
    graph_.operations.push_back({.a = a, .b = b, .y = y, .mode = mode});
    return y;
  }

  // In the type of v, as tensor cores take it. cuDNN recognizes a softmax by its statistics too,
  // the maximum plus the sum's logarithm, which nothing reads.
  TensorIndex softmax(TensorIndex x) {
    const TensorIndex most = reduced(x, CUDNN_REDUCE_TENSOR_MAX);
    const TensorIndex less = pointwise(CUDNN_POINTWISE_SUB, x, most);
    const TensorIndex power = pointwise(CUDNN_POINTWISE_EXP, less, kNoTensor);
    const TensorIndex sum = reduced(power, CUDNN_REDUCE_TENSOR_ADD);
    const TensorIndex logarithm = of_rows(CUDNN_POINTWISE_LOG, sum, kNoTensor);
    of_rows(CUDNN_POINTWISE_ADD, most, logarithm);
    return pointwise(CUDNN_POINTWISE_DIV, power, sum,
                     *cudnn_type_of(request_.inputs[2].type.dtype));
  }

  // A constant of one element is a value; others are tensors that are broadcast to the scores.
  Result<TensorIndex> score_input(int input) {
    const auto index = static_cast<size_t>(input + 2);
    const Operand& operand = request_.inputs[index];
    const auto dtype = cudnn_type_of(operand.type.dtype);
    if (!dtype) return refuse(fmt::format("cuDNN has no type {}", to_string(operand.type.dtype)));
    if (operand.type.dtype == DataType::kBool) return refuse(kNoBools);
    const Shape &shape = operand.type.shape, &strides = operand.strides;
    CudnnTensor made{.place = TensorPlace::kInput,
                     .index = static_cast<int>(index),
                     .dtype = *dtype,
                     .dims = Dims::filled(4, 1)};
    for (int axis = 0; axis < shape.rank(); ++axis)
      made.dims[4 - shape.rank() + axis] = shape[axis].value();
    made.strides = row_major_strides(made.dims);
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis].value() != 1) made.strides[4 - shape.rank() + axis] = strides[axis].value();
    made.alignment = alignment_of(made.dims, made.strides, operand.type.dtype);
    return graph_.add(made);
  }

  const Attention& op_;
  const Request& request_;
  Operations graph_;
  Dims scores_;
};

}  // namespace

Result<Operations> attention_operations(const Attention& op, const Request& request,
                                        EpilogueForm /*form*/) {
  if (std::string reason = why_no_operations(request); !reason.empty())
    return refuse(std::move(reason));
  if (std::string reason = why_no_attention(op, request); !reason.empty())
    return refuse(std::move(reason));
  return AttentionGraph(op, request).run();
}

}  // namespace anneal::cuda
