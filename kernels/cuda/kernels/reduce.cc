// "cuda.reduce.rows" and "cuda.arg_reduce.rows".
#include <fmt/format.h>

#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/rows.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

// Names of device/rows.h.
const char* combining(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kMax:
      return "Largest";
    case ReduceKind::kMin:
      return "Smallest";
    case ReduceKind::kProd:
      return "Multiply";
    default:
      return "Add";
  }
}

// The result for no element at all, as T.
std::string start_text(ReduceKind kind, DataType dtype) {
  if (kind == ReduceKind::kSum || kind == ReduceKind::kMean) return "T(0)";
  if (kind == ReduceKind::kProd) return "T(1)";
  const bool largest = kind == ReduceKind::kMax;
  if (is_float(dtype)) return largest ? "T(-op::inf_f32())" : "T(op::inf_f32())";
  if (dtype == DataType::kBool) return largest ? "T(0)" : "T(1)";
  return fmt::format("T(op::{}<{}>())", largest ? "least" : "most", type_text(dtype));
}

// Of the value that all elements together are.
std::string result_text(ReduceKind kind, DataType dtype) {
  if (dtype == DataType::kBool) return "value != 0";
  if (kind != ReduceKind::kMean) return "value";
  if (is_float(dtype)) return "value / T(length)";
  return is_signed_integer(dtype) ? "T(op::div(i64(value), i64(length)))"
                                  : "T(op::div(u64(value), u64(length)))";
}

KernelResult make_reduce(const Reduce& op, const Request& original) {
  const DataType dtype = op.map.empty() ? original.inputs[0].type.dtype : op.map.results()[0].dtype;
  auto inputs = op.map.empty() ? std::vector<int>{0} : mapped_inputs(original, 2);
  if (!inputs) return refuse(inputs.reason());
  const bool extreme = op.kind == ReduceKind::kMax || op.kind == ReduceKind::kMin;
  if (dtype == DataType::kBool && !extreme) return refuse("a sum or product of bool");
  const auto axes = integers(original.inputs[1]);
  if (!axes) return refuse("axes that are not constant");
  const int rank = original.inputs[0].type.shape.rank();
  std::vector<bool> reduced(static_cast<size_t>(rank));
  for (const int64_t axis : *axes) {
    if (axis < -rank || axis >= rank) return refuse("axes that the input does not have");
    reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  OperandViews seen(original, *std::move(inputs));
  const Rows rows(seen, reduced, op.keepdims, op.map.empty());
  const std::string type =
      dtype == DataType::kBool ? "i32" : type_text(register_type(accumulator(dtype)));
  const auto body = [&](const Request& request, Extents& extents) {
    std::string zeros, coordinates;
    for (int axis = 0; op.keepdims && axis < rank; ++axis)
      if (reduced[static_cast<size_t>(axis)]) zeros += fmt::format("const i64 i{} = 0;\n", axis);
    for (int axis = 0; axis < seen.space().rank(); ++axis)
      coordinates += fmt::format(", i{}", axis);
    return fmt::format(
        "using T = {};\nT value = {};\n{}{}{}if (is_first) store({}{});\n", type,
        start_text(op.kind, dtype),
        rows.each(request, extents, fmt::format("value = {}()(value, T(x));\n", combining(op.kind)),
                  op.map),
        rows.combined("value", fmt::format("{}()", combining(op.kind))), zeros,
        result_text(op.kind, dtype), coordinates);
  };
  return rows.make(seen, accumulator(dtype), "reduce", type, body);
}

KernelResult make_arg_reduce(const ArgReduce& op, const Request& original) {
  const DataType dtype = original.inputs[0].type.dtype;
  const int rank = original.inputs[0].type.shape.rank();
  std::vector<bool> reduced(static_cast<size_t>(rank));
  reduced[static_cast<size_t>(op.axis)] = true;
  OperandViews seen(original);
  const Rows rows(seen, reduced, op.keepdims);
  const std::string place =
      fmt::format("Place<{}>", dtype == DataType::kBool ? "i32" : type_text(register_type(dtype)));
  const std::string best = fmt::format("Best<{}, {}>()", op.largest, op.select_last);
  const auto body = [&](const Request& request, Extents& extents) {
    std::string coordinates;
    for (int axis = 0; axis < seen.space().rank(); ++axis)
      coordinates += axis == op.axis && op.keepdims ? ", 0" : fmt::format(", i{}", axis);
    return fmt::format(
        "using P = {};\nP value = {{0, -1}};\n{}{}if (is_first) store(value.index{});\n", place,
        rows.each(request, extents, fmt::format("value = {}(value, P{{x, r}});\n", best)),
        rows.combined("value", best), coordinates);
  };
  return rows.make(seen, DataType::kI64, "arg_reduce", place, body, true);
}

constexpr KernelEntry kReduceEntries[] = {
    entry<Reduce, make_reduce>("cuda.reduce.rows"),
    entry<ArgReduce, make_arg_reduce>("cuda.arg_reduce.rows"),
};

}  // namespace

std::span<const KernelEntry> reduce_entries() { return kReduceEntries; }

}  // namespace anneal::cuda
