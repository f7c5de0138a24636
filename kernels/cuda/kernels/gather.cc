// "cuda.gather.indexed", "cuda.gather_elements.indexed", "cuda.gather_nd.indexed": a thread reads
// the index, or the tuple of indices, of its element, or of 16 bytes of a row.
// "cuda.range.strided".
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

constexpr KernelEntry kGatherEntries[] = {
    entry<Gather, make_gather_axis>("cuda.gather.indexed"),
    entry<GatherElements, make_gather_elements>("cuda.gather_elements.indexed"),
    entry<GatherND, make_gather_nd>("cuda.gather_nd.indexed"),
    entry<Range, make_range>("cuda.range.strided"),
};

}  // namespace

std::span<const KernelEntry> gather_entries() { return kGatherEntries; }

}  // namespace anneal::cuda
