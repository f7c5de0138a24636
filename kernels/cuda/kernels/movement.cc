// Ops whose output is their input seen through other axes: "cuda.transpose.tiled",
// "cuda.transpose.strided", "cuda.expand.strided", "cuda.slice.strided", "cuda.bit_cast.strided",
// "cuda.reshape.strided", "cuda.reverse_sequence.strided". Integer inputs that decide shapes are
// constants or not read at all; Slice alone reads them where only a run knows them.
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

// Slice where a run decides on its starts, axes or steps. The sizes of the result are known before.
class SliceAtRunTime {
 public:
  // REQUIRES: `count` entries of each input.
  SliceAtRunTime(const Request& request, int64_t count) : request_(request), count_(count) {
    for (const int input : {1, 3, 4})
      if (!integers(request.inputs[static_cast<size_t>(input)])) inputs_.push_back(input);
  }

  KernelResult make() const {
    std::vector<int> inputs = {0};
    PerElement more;
    for (const int input : inputs_) {
      more.host_inputs.push_back(inputs.size());
      inputs.push_back(input);
    }
    OperandViews seen(request_, std::move(inputs));
    seen.as_bits();
    const int rank = request_.inputs[0].type.shape.rank();
    more.before = [this, rank](const Request& request, Extents& extents) {
      std::string text;
      for (int axis = 0; axis < rank; ++axis)
        text += fmt::format("i64 start{0} = 0, step{0} = 1;\n", axis);
      for (int64_t i = 0; i < count_; ++i) text += entry_text(request, extents, i);
      return text;
    };
    const auto body = [rank](const Request& request, Extents& extents) {
      const Operand& x = request.inputs[0];
      const std::string at = offset_text(request, extents, {false, 0}, x.type.shape, [](int axis) {
        return fmt::format("(start{0} + i{0} * step{0})", axis);
      });
      return store_call(loaded(x.type.dtype, fmt::format("x0[{}]", at)), rank);
    };
    const DataType dtype = seen.request().inputs[0].type.dtype;
    return make_per_element(seen, dtype, "slice_at_run_time", body, std::move(more));
  }

 private:
  // Entry i of an input: a literal, or an element that the function reads.
  std::string value_text(Extents& extents, int input, int64_t i) const {
    const auto known = integers(request_.inputs[static_cast<size_t>(input)]);
    if (known)
      return literal(RegisterType::kI64, static_cast<uint64_t>((*known)[static_cast<size_t>(i)]));
    const auto of = std::ranges::find(inputs_, input) - inputs_.begin() + 1;
    return fmt::format("i64(x{}[{} * {}])", of, i, extents.input_stride(static_cast<int>(of), 0));
  }
  // As cpu.slice.reference takes an entry.
  std::string entry_text(const Request& request, Extents& extents, int64_t i) const {
    const int rank = request.inputs[0].type.shape.rank();
    const auto axes = integers(request_.inputs[3]);
    std::string text = fmt::format("{{\nconst i64 start = {}, step = {};\ni64 axis = {};\n",
                                   value_text(extents, 1, i), value_text(extents, 4, i),
                                   value_text(extents, 3, i));
    text += fmt::format("axis += axis < 0 ? {} : 0;\n", rank);
    for (int axis = 0; axis < rank; ++axis) {
      if (axes && (*axes)[static_cast<size_t>(i)] != axis &&
          (*axes)[static_cast<size_t>(i)] != axis - rank)
        continue;
      text += fmt::format(
          "if (axis == {0}) {{\nconst i64 last = step < 0 ? {1} - 1 : {1};\n"
          "start{0} = op::max(op::min(start < 0 ? start + {1} : start, last), i64(0));\n"
          "step{0} = step;\n}}\n",
          axis, extents.input_dim(0, axis));
    }
    return text + "}\n";
  }

  const Request& request_;
  int64_t count_;
  std::vector<int> inputs_;  // that a run decides on
};

KernelResult make_slice(const Slice&, const Request& request) {
  const auto starts = integers(request.inputs[1]), axes = integers(request.inputs[3]),
             steps = integers(request.inputs[4]);
  if (!starts || !axes || !steps) {
    const Size count = request.inputs[1].type.shape[0];
    for (const int input : {1, 3, 4}) {
      const Type& type = request.inputs[static_cast<size_t>(input)].type;
      if (!count.known() || type.shape[0] != count)
        return refuse("another number of axes or steps than of starts");
    }
    return SliceAtRunTime(request, count.value()).make();
  }
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

// Lengths beyond the sequence are taken as its whole: a GPU reports no values.
KernelResult make_reverse_sequence(const ReverseSequence& op, const Request& original) {
  OperandViews seen(original);
  seen.as_bits();
  const auto batch = static_cast<int>(op.batch_axis), time = static_cast<int>(op.time_axis);
  const auto body = [&](const Request& request, Extents& extents) {
    const Operand& x = request.inputs[0];
    std::string text = fmt::format(
        "const i64 steps = {0};\nconst i64 given = i64(x1[i{1} * {2}]);\n"
        "const i64 length = op::max(op::min(given, steps), i64(0));\n"
        "const i64 from = i{3} < length ? length - 1 - i{3} : i{3};\n",
        extents.input_dim(0, time), batch, extents.input_stride(1, 0), time);
    const std::string at = offset_text(
        request, extents, {false, 0}, x.type.shape,
        [time](int axis) { return axis == time ? std::string("from") : fmt::format("i{}", axis); });
    return text + store_call(loaded(x.type.dtype, fmt::format("x0[{}]", at)), x.type.shape.rank());
  };
  const DataType dtype = seen.request().inputs[0].type.dtype;
  return make_per_element(seen, dtype, "reverse_sequence", body);
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
    entry<ReverseSequence, make_reverse_sequence>("cuda.reverse_sequence.strided"),
};

}  // namespace

std::span<const KernelEntry> movement_entries() { return kMovementEntries; }

}  // namespace anneal::cuda
