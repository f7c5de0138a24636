// "cuda.reduce.rows" and "cuda.arg_reduce.rows". "cuda.reduce.blocks", by axes that a run chooses.
#include <fmt/format.h>

#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
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

// Of the elements that are reduced.
DataType element_type(const Reduce& op, const Request& request) {
  return op.map.empty() ? request.inputs[0].type.dtype : op.map.results()[0].dtype;
}

// The type T in which they are combined.
std::string combined_type(DataType dtype) {
  return dtype == DataType::kBool ? "i32" : type_text(register_type(accumulator(dtype)));
}

// The inputs that a function reads, without the axes.
Result<std::vector<int>> reduced_inputs(const Reduce& op, const Request& request) {
  const bool extreme = op.kind == ReduceKind::kMax || op.kind == ReduceKind::kMin;
  if (element_type(op, request) == DataType::kBool && !extreme)
    return refuse("a sum or product of bool");
  return op.map.empty() ? std::vector<int>{0} : mapped_inputs(request, 2);
}

KernelResult make_reduce(const Reduce& op, const Request& original) {
  const DataType dtype = element_type(op, original);
  auto inputs = reduced_inputs(op, original);
  if (!inputs) return refuse(inputs.reason());
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
  const std::string type = combined_type(dtype);
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

// A reduction by axes that the function reads: a block for each element of the output. Elements of
// the output have the order of the axes that stay, whether or not it has the others, too.
class ReductionByBlocks {
 public:
  // axes: the input that holds them, as seen.
  ReductionByBlocks(const Reduce& op, const Request& request, Extents& extents, int axes)
      : op_(op), request_(request), extents_(extents), axes_(axes) {}

  std::string body() {
    const int rank = request_.inputs[0].type.shape.rank();
    const DataType dtype = element_type(op_, request_);
    std::string lengths, kept, own, stored;
    for (int axis = 0; axis < rank; ++axis)
      lengths += fmt::format(
          "const bool is_reduced{0} = (reduced >> {0} & 1) != 0;\n"
          "if (is_reduced{0}) length *= {1};\n",
          axis, extents_.input_dim(0, axis));
    for (int axis = rank; axis-- > 0;) {
      const std::string size = extents_.input_dim(0, axis);
      kept += fmt::format(
          "const i64 c{0} = is_reduced{0} ? 0 : rest % {1};\nif (!is_reduced{0}) rest /= {1};\n",
          axis, size);
      own += fmt::format(
          "const i64 j{0} = is_reduced{0} ? left % {1} : c{0};\n"
          "if (is_reduced{0}) left /= {1};\n",
          axis, size);
    }
    const std::vector<std::string> sizes = output_dims(request_, extents_, 0);
    for (size_t axis = sizes.size(); axis-- > 0;)
      stored +=
          fmt::format("const i64 i{0} = of_output % {1};\nof_output /= {1};\n", axis, sizes[axis]);
    return fmt::format(
        "u32 reduced = 0;\n"
        "for (i64 i = 0; i < {axes}; ++i) {{\n"
        "const i64 given = i64(x{number}[i * {stride}]);\n"
        "const i64 axis = given < 0 ? given + {rank} : given;\n"
        "if (axis >= 0 && axis < {rank}) reduced |= 1u << axis;\n}}\n"
        "i64 length = 1;\n{lengths}const i64 rows = {rows};\n"
        "for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {{\n"
        "[[maybe_unused]] i64 rest = row;\n{kept}T value = {start};\n"
        "for (i64 r = threadIdx.x; r < length; r += {threads}) {{\n"
        "[[maybe_unused]] i64 left = r;\n{own}{element}"
        "value = {combining}()(value, T(x));\n}}\n"
        "value = over_row<{threads}>(value, partial, {combining}());\n"
        "if (threadIdx.x == 0) {{\n[[maybe_unused]] i64 of_output = row;\n{stored}{store}}}\n}}\n",
        fmt::arg("axes", extents_.input_dim(axes_, 0)), fmt::arg("number", axes_),
        fmt::arg("stride", extents_.input_stride(axes_, 0)), fmt::arg("rank", rank),
        fmt::arg("lengths", lengths), fmt::arg("rows", product(sizes)), fmt::arg("kept", kept),
        fmt::arg("start", start_text(op_.kind, dtype)), fmt::arg("threads", Rows::kThreads),
        fmt::arg("own", own), fmt::arg("element", element_text()),
        fmt::arg("combining", combining(op_.kind)), fmt::arg("stored", stored),
        fmt::arg("store",
                 store_call(result_text(op_.kind, dtype), request_.outputs[0].type.shape.rank())));
  }

 private:
  // "const f32 x = ...;": of the element at j0, j1, ...
  std::string element_text() {
    const Shape& space = request_.inputs[0].type.shape;
    const auto coordinate = [](int axis) { return fmt::format("j{}", axis); };
    const auto input = [&](int i) {
      return loaded(request_.inputs[static_cast<size_t>(i)].type.dtype,
                    fmt::format("x{}[{}]", i,
                                offset_text(request_, extents_, {false, i}, space, coordinate)));
    };
    if (op_.map.empty()) return fmt::format("const auto x = {};\n", input(0));
    const ProgramText program = text_of(op_.map, input, coordinate, "m");
    return program.statements + fmt::format("const auto x = {};\n", program.registers[0]);
  }

  const Reduce& op_;
  const Request& request_;
  Extents& extents_;
  int axes_;
};

KernelResult make_reduce_by_blocks(const Reduce& op, const Request& original) {
  auto inputs = reduced_inputs(op, original);
  if (!inputs) return refuse(inputs.reason());
  const auto axes = static_cast<int>(inputs->size());
  inputs->push_back(1);
  const OperandViews seen(original, *std::move(inputs));
  const Request request = seen.request();
  const DataType dtype = element_type(op, original);
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator(dtype), extents);
  if (!store) return refuse(store.reason());
  const std::string body = ReductionByBlocks(op, request, extents, axes).body();
  std::string text = fmt::format(
      "{}using T = {};\nKERNEL($name, {})({}{}{}) {{\nSHARED(T, partial, {});\n"
      "const Store store = {};\n{}}}\n",
      store->definition(), combined_type(dtype), Rows::kThreads,
      input_parameters(request, request.op_input_count), store->parameters(), extents.parameters(),
      Rows::kThreads / 32, store->construction(), body);
  FunctionParts parts =
      parts_of(request, seen, extents,
               {"reduce_by_blocks", {"program.h", "lanes.h", "rows.h"}, std::move(text)});
  parts.host_inputs = {static_cast<size_t>(axes)};
  parts.geometry = [spec = &spec_of(request.device)](FunctionParts::Views,
                                                     FunctionParts::Views outputs) {
    const int64_t threads = count(outputs[0].dims) * Rows::kThreads;
    return Geometry{.grid = {resident_blocks_for(*spec, threads, Rows::kThreads), 1, 1},
                    .block = {Rows::kThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
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
    entry<Reduce, make_reduce_by_blocks>("cuda.reduce.blocks"),
    entry<ArgReduce, make_arg_reduce>("cuda.arg_reduce.rows"),
};

}  // namespace

std::span<const KernelEntry> reduce_entries() { return kReduceEntries; }

}  // namespace anneal::cuda
