// Ops whose output is their input seen through other axes: "cuda.transpose.tiled",
// "cuda.transpose.strided", "cuda.expand.strided", "cuda.slice.strided", "cuda.bit_cast.strided",
// "cuda.reshape.strided". Integer inputs that decide shapes are constants or not read at all.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/tiled_copy.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

// Copies keep every bit, those of a NaN, too.
KernelResult make_copy(OperandViews seen, std::string_view family) {
  if (!has_epilogue(seen.request())) seen.as_bits();
  const Request request = seen.request();
  const DataType dtype = request.inputs[0].type.dtype;
  ProgramBuilder builder;
  return make_elementwise(builder.finish(builder.input(0, dtype), dtype), std::move(seen), family);
}

KernelResult make_expand(const Expand&, const Request& request) {
  return make_copy(OperandViews(request, {0}), "expand");
}

KernelResult make_bit_cast(const BitCast& op, const Request& request) {
  OperandViews seen(request, {0});
  seen.set_dtype(0, op.dtype);
  return make_copy(std::move(seen), "bit_cast");
}

// A step with the same elements whose product with a stride stays within 64 bits: a step of the
// whole axis or more takes one element. nullopt: there is none, as the size is open.
std::optional<int64_t> step_within(int64_t step, Size size) {
  const int64_t most = size.known() ? std::max<int64_t>(size.value(), 1) : int64_t{1} << 31;
  const int64_t within = std::clamp(step, -most, most);
  if (within != step && !size.known()) return std::nullopt;
  return within;
}

KernelResult make_slice(const Slice&, const Request& request) {
  const auto starts = integers(request.inputs[1]), axes = integers(request.inputs[3]),
             steps = integers(request.inputs[4]);
  if (!starts || !axes || !steps) return refuse("starts, axes or steps that are not constant");
  const int rank = request.inputs[0].type.shape.rank();
  if (axes->size() != starts->size() || steps->size() != starts->size())
    return refuse("another number of axes or steps than of starts");
  AxisMapping look = AxisMapping::all(rank);
  for (size_t i = 0; i < starts->size(); ++i) {
    const int64_t at = (*axes)[i] < 0 ? (*axes)[i] + rank : (*axes)[i];
    if (at < 0 || at >= rank) return refuse("axes that the input does not have");
    AxisMapping::Axis& axis = look.axes[static_cast<size_t>(at)];
    axis.sliced = true;
    axis.start = (*starts)[i];
    const auto step = step_within((*steps)[i], request.inputs[0].type.shape[static_cast<int>(at)]);
    if (!step) return refuse("a step beyond 2^31 along an axis of open size");
    axis.step = *step;
  }
  OperandViews seen(request, {0});
  seen.look_at_input(0, look);
  return make_copy(std::move(seen), "slice");
}

// Element number n of both, in row-major order.
KernelResult make_reshape(const Reshape&, const Request& original) {
  OperandViews seen(original, {0});
  if (seen.is_dense(original.inputs[0])) {
    seen.look_at_input(0, {.dense = true});
    return make_copy(std::move(seen), "reshape");
  }
  if (!has_epilogue(original)) {
    seen.as_bits();
    if (seen.is_dense(original.outputs[0])) {
      seen.look_at_output(0, {.dense = true});
      return make_copy(std::move(seen), "reshape");
    }
  }
  const DataType dtype = seen.request().inputs[0].type.dtype;
  const auto body = [&](const Request& request, Extents& extents) {
    const Shape& from = request.inputs[0].type.shape;
    std::string text = "i64 left = n;\n";
    for (int axis = from.rank(); axis-- > 0;)
      text += fmt::format("const i64 j{0} = left % {1};\nleft /= {1};\n", axis,
                          extents.input_dim(0, axis));
    const std::string at = offset_text(request, extents, {false, 0}, from,
                                       [](int axis) { return fmt::format("j{}", axis); });
    return text + store_call(loaded(dtype, fmt::format("x0[{}]", at)), seen.space().rank());
  };
  return make_per_element(seen, accumulator(dtype), "reshape", body);
}

OperandViews transposed(const Transpose& op, const Request& request) {
  AxisMapping look;
  for (const int64_t axis : op.permutation) look.axes.push_back({.of = {static_cast<int>(axis)}});
  OperandViews seen(request, {0});
  seen.look_at_input(0, look);
  return seen;
}

KernelResult make_transpose(const Transpose& op, const Request& request) {
  return make_copy(transposed(op, request), "transpose");
}

KernelResult make_tiled_transpose(const Transpose& op, const Request& request) {
  return make_tiled_copy(transposed(op, request), "transpose");
}

constexpr KernelEntry kMovementEntries[] = {
    entry<Transpose, make_tiled_transpose>("cuda.transpose.tiled"),
    entry<Transpose, make_transpose>("cuda.transpose.strided"),
    entry<Expand, make_expand>("cuda.expand.strided"),
    entry<Slice, make_slice>("cuda.slice.strided"),
    entry<BitCast, make_bit_cast>("cuda.bit_cast.strided"),
    entry<Reshape, make_reshape>("cuda.reshape.strided"),
};

}  // namespace

std::span<const KernelEntry> movement_entries() { return kMovementEntries; }

}  // namespace anneal::cuda
