// "cuda.gather.indexed", "cuda.gather_elements.indexed", "cuda.gather_nd.indexed": a thread reads
// the index, or the tuple of indices, of its element, or of 16 bytes of a row.
// "cuda.range.strided". "cuda.decision_trees.element": a thread takes a row down a tree.
#include <fmt/format.h>

#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

int rank_of(const Request& request, size_t input) {
  return request.inputs[input].type.shape.rank();
}

KernelResult make_gather_axis(const Gather& op, const Request& request) {
  return make_gather(
      IndexMapping::along(static_cast<int>(op.axis), rank_of(request, 0), rank_of(request, 1)),
      OperandViews(request), "gather");
}

KernelResult make_gather_elements(const GatherElements& op, const Request& request) {
  return make_gather(IndexMapping::by_element(static_cast<int>(op.axis), rank_of(request, 0)),
                     OperandViews(request), "gather_elements");
}

KernelResult make_gather_nd(const GatherND& op, const Request& request) {
  const Shape& indices = request.inputs[1].type.shape;
  const auto length = static_cast<int>(indices[indices.rank() - 1].value());
  return make_gather(IndexMapping::tuples(static_cast<int>(op.batch_dims), length,
                                          rank_of(request, 0), indices.rank()),
                     OperandViews(request), "gather_nd");
}

// A constant of one element, in f64 or i64.
std::optional<Reg> wide_constant(ProgramBuilder& builder, const Operand& operand) {
  if (operand.constant == nullptr) return std::nullopt;
  const DataType dtype = operand.constant->dtype();
  const Scalar value = load_scalar(dtype, operand.constant->bytes().data());
  switch (register_type(dtype)) {
    case RegisterType::kF32:
      return builder.constant(RegisterType::kF64, double{value.as<float>()});
    case RegisterType::kF64:
      return builder.constant(RegisterType::kF64, value.as<double>());
    case RegisterType::kI32:
      return builder.constant(RegisterType::kI64, int64_t{value.as<int32_t>()});
    case RegisterType::kU32:
      return builder.constant(RegisterType::kI64, int64_t{value.as<uint32_t>()});
    default:
      return builder.constant(RegisterType::kI64, value.as<int64_t>());
  }
}

// A start or a step that only a run knows: the values are copied for each launch.
KernelResult make_range_at_run_time(const Request& request) {
  const DataType dtype = request.outputs[0].type.dtype;
  const bool is_wide = is_float(dtype);
  const auto body = [&](const Request& seen, Extents&) {
    const auto wide = [&](int input) {
      return fmt::format(
          "{}({})", is_wide ? "f64" : "i64",
          loaded(seen.inputs[static_cast<size_t>(input)].type.dtype, fmt::format("x{}[0]", input)));
    };
    const std::string sum =
        fmt::format("op::add({}, op::mul({}(i0), {}))", wide(0), is_wide ? "f64" : "i64", wide(1));
    return store_call(fmt::format("{}({})", type_text(register_type(dtype)), sum), 1);
  };
  return make_per_element(OperandViews(request, {0, 2}), accumulator(dtype), "range_at_run_time",
                          body, {.host_inputs = {0, 1}});
}

// start + i * delta, in f64 as the reference has it, or in integers that wrap. The inputs lie on
// the host: constants are in the text, and the limit decides no more than the size.
KernelResult make_range(const Range&, const Request& request) {
  ProgramBuilder builder;
  const auto start = wide_constant(builder, request.inputs[0]);
  const auto delta = wide_constant(builder, request.inputs[2]);
  if (!start || !delta) return make_range_at_run_time(request);
  const DataType dtype = request.outputs[0].type.dtype;
  const Reg way = builder.apply(Opcode::kMul, builder.cast(builder.index(0), start->type), *delta);
  const Reg sum = builder.apply(Opcode::kAdd, *start, way);
  return make_elementwise(builder.finish(builder.cast(sum, register_type(dtype)), dtype),
                          OperandViews(request, {}), "range");
}

// An index out of range is taken as the nearest one: a GPU reports no values.
KernelResult make_decision_trees(const DecisionTrees& op, const Request& original) {
  OperandViews seen(original);
  const auto body = [&](const Request& request, Extents& extents) {
    const DataType dtype = request.inputs[0].type.dtype;
    const auto index = [&](int table, const std::string& at, const std::string& size) {
      return fmt::format("op::max(op::min(i64(x{}[{}]), {} - 1), i64(0))", table, at, size);
    };
    const auto at = [&](int input, int axis, const std::string& i) {
      return fmt::format("{} * {}", i, extents.input_stride(input, axis));
    };
    const std::string nodes = extents.input_dim(2, 0);
    const std::string x =
        loaded(dtype, fmt::format("x0[{} + {}]", at(0, 0, "i0"), at(0, 1, "feature")));
    return fmt::format(
               "i64 node = {};\n"
               "for (i64 level = 0; level < {} && node >= {}; ++level) {{\n"
               "  const i64 feature = {};\n"
               "  const i64 passes = {} <= {};\n"
               "  node = {};\n}}\n",
               index(4, at(4, 0, "i1"), nodes), op.depth, op.leaves,
               index(1, at(1, 0, "node"), extents.input_dim(0, 1)), x,
               loaded(dtype, fmt::format("x2[{}]", at(2, 0, "node"))),
               index(3, at(3, 0, "node") + " + " + at(3, 1, "passes"), nodes)) +
           store_call("i32(node)", 2);
  };
  return make_per_element(seen, DataType::kI32, "decision_trees", body);
}

constexpr KernelEntry kGatherEntries[] = {
    entry<Gather, make_gather_axis>("cuda.gather.indexed"),
    entry<GatherElements, make_gather_elements>("cuda.gather_elements.indexed"),
    entry<GatherND, make_gather_nd>("cuda.gather_nd.indexed"),
    entry<Range, make_range>("cuda.range.strided"),
    entry<DecisionTrees, make_decision_trees>("cuda.decision_trees.element"),
};

}  // namespace

std::span<const KernelEntry> gather_entries() { return kGatherEntries; }

}  // namespace anneal::cuda
