// Quantize and Dequantize as programs: "cuda.quantize.strided", "cuda.dequantize.strided". A scale
// and a zero point are for the tensor, for a position on an axis, or for a block along it.
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/quantize_program.h"

namespace anneal::cuda {
namespace {

// A scale or zero point, so that it broadcasts to x.
AxisMapping along_axis(const Shape& parameter, int64_t axis, int rank) {
  AxisMapping look;
  const bool one = parameter.rank() == 0 || parameter[0] == Size(1);
  if (one) return look;
  look.axes.push_back({.of = {0}});
  for (int after = static_cast<int>(axis) + 1; after < rank; ++after) look.axes.push_back({});
  return look;
}

DataType result_type(const Quantize& op, const Request&) { return op.dtype; }
DataType result_type(const Dequantize&, const Request& request) {
  return request.inputs[1].type.dtype;
}

template <class T>
KernelResult make_converted(const T& op, const Request& request, std::string_view family) {
  ProgramBuilder builder;
  const auto value = append(builder, op, request);
  if (!value) return refuse(value.reason());
  // An epilogue gets what is not rounded yet.
  const DataType result = result_type(op, request);
  const Program program =
      builder.finish(*value, has_epilogue(request) ? accumulator(result) : result);
  OperandViews seen(request, has_zero_point(request) ? std::vector{0, 1, 2} : std::vector{0, 1});
  if (op.block_size != 0)
    return make_blocked(program, {static_cast<int>(op.axis), op.block_size}, std::move(seen),
                        family);
  const int rank = request.inputs[0].type.shape.rank();
  for (int i = 1; i < (has_zero_point(request) ? 3 : 2); ++i)
    seen.look_at_input(
        i, along_axis(request.inputs[static_cast<size_t>(i)].type.shape, op.axis, rank));
  return make_elementwise(program, std::move(seen), family);
}

KernelResult make_quantize(const Quantize& op, const Request& request) {
  return make_converted(op, request, "quantize");
}
KernelResult make_dequantize(const Dequantize& op, const Request& request) {
  return make_converted(op, request, "dequantize");
}

constexpr KernelEntry kQuantizeEntries[] = {
    entry<Quantize, make_quantize>("cuda.quantize.strided"),
    entry<Dequantize, make_dequantize>("cuda.dequantize.strided"),
};

}  // namespace

std::span<const KernelEntry> quantize_entries() { return kQuantizeEntries; }

}  // namespace anneal::cuda
