// Ops that put their output together from parts of their inputs: "cuda.concat.parts",
// "cuda.pad.strided", "cuda.tile.strided".
#include <fmt/format.h>

#include <algorithm>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {
namespace {

std::string element(const Request& request, Extents& extents, int input, const Shape& space,
                    const std::function<std::string(int)>& coordinate) {
  const DataType dtype = request.inputs[static_cast<size_t>(input)].type.dtype;
  return loaded(dtype,
                fmt::format("x{}[{}]", input,
                            offset_text(request, extents, {false, input}, space, coordinate)));
}

std::string register_text(const Request& request) {
  return type_text(register_type(request.inputs[0].type.dtype));
}

KernelResult make_concat(const Concat& op, const Request& original) {
  OperandViews seen(original);
  if (!has_epilogue(original)) seen.as_bits();
  const int joined = static_cast<int>(op.axis);
  const auto body = [&](const Request& request, Extents& extents) {
    const int inputs = request.op_input_count;
    const auto at = [&](int axis) {
      return axis == joined ? std::string("j") : fmt::format("i{}", axis);
    };
    std::string text = fmt::format("i64 j = i{};\n{} value;\n", joined, register_text(request));
    for (int i = 0; i < inputs; ++i) {
      if (i + 1 < inputs) text += fmt::format("if (j < {}) {{\n", extents.input_dim(i, joined));
      const Shape& own = request.inputs[static_cast<size_t>(i)].type.shape;
      text += fmt::format("value = {};\n", element(request, extents, i, own, at));
      if (i + 1 < inputs)
        text += fmt::format("}} else {{\nj -= {};\n", extents.input_dim(i, joined));
    }
    text.append(static_cast<size_t>(inputs - 1), '}');
    return text + "\n" + store_call("value", seen.space().rank());
  };
  const DataType dtype = seen.request().inputs[0].type.dtype;
  return make_per_element(seen, accumulator(dtype), "concat", body);
}

KernelResult make_tile(const Tile&, const Request& original) {
  OperandViews seen(original, {0});
  if (!has_epilogue(original)) seen.as_bits();
  const auto body = [&](const Request& request, Extents& extents) {
    const Shape& own = request.inputs[0].type.shape;
    const auto at = [&](int axis) {
      return fmt::format("(i{} % {})", axis, extents.input_dim(0, axis));
    };
    return store_call(element(request, extents, 0, own, at), own.rank());
  };
  const DataType dtype = seen.request().inputs[0].type.dtype;
  return make_per_element(seen, accumulator(dtype), "tile", body);
}

// Which element of x is at a position, as cpu.pad.reference has it. Constants are elsewhere.
std::string position_text(PadMode mode, int axis, const std::string& size) {
  if (mode == PadMode::kEdge)
    return fmt::format("j{0} = j{0} < 0 ? 0 : j{0} < {1} ? j{0} : {1} - 1;\n", axis, size);
  const std::string period =
      mode == PadMode::kWrap ? size : fmt::format("op::max({} * 2 - 2, i64(1))", size);
  std::string text = fmt::format("j{0} = (j{0} % {1} + {1}) % {1};\n", axis, period);
  if (mode == PadMode::kReflect)
    text += fmt::format("j{0} = j{0} < {1} ? j{0} : {2} - j{0};\n", axis, size, period);
  return text;
}

KernelResult make_pad(const Pad& op, const Request& original) {
  const auto pads = integers(original.inputs[1]);
  const int rank = original.inputs[0].type.shape.rank();
  if (!pads || pads->size() != 2 * static_cast<size_t>(rank))
    return refuse("pads that are not constant");
  const bool has_value = original.op_input_count > 2 && original.inputs[2].present;
  const bool constant = op.mode == PadMode::kConstant;
  for (int axis = 0; !constant && axis < rank; ++axis) {
    const int64_t begin = (*pads)[static_cast<size_t>(axis)];
    const int64_t end = (*pads)[static_cast<size_t>(axis + rank)];
    const int64_t least = original.sizes.range(original.inputs[0].type.shape[axis]).min;
    if ((begin != 0 || end != 0) &&
        least + std::min<int64_t>(begin, 0) + std::min<int64_t>(end, 0) < 1)
      return refuse("an axis that may be empty has nothing to repeat");
  }
  OperandViews seen(original, has_value ? std::vector<int>{0, 2} : std::vector<int>{0});
  if (!has_epilogue(original)) seen.as_bits();
  const auto body = [&](const Request& request, Extents& extents) {
    const Shape& own = request.inputs[0].type.shape;
    std::string text, inside;
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t begin = (*pads)[static_cast<size_t>(axis)];
      const int64_t end = (*pads)[static_cast<size_t>(axis + rank)];
      text += fmt::format("i64 j{0} = i{0};\n", axis);
      if (begin == 0 && end == 0) continue;
      // Negative pads crop before the rest is extended.
      const std::string dim = extents.input_dim(0, axis);
      const std::string size = fmt::format("s{}", axis);
      text += fmt::format("const i64 c{0} = op::min(i64({1}), {2});\nj{0} -= {3};\n", axis,
                          std::max<int64_t>(-begin, 0), dim, std::max<int64_t>(begin, 0));
      text += fmt::format("const i64 s{0} = {2} - c{0} - op::min(i64({1}), {2} - c{0});\n", axis,
                          std::max<int64_t>(-end, 0), dim);
      if (constant) {
        text += fmt::format("const bool in{0} = j{0} >= 0 && j{0} < {1};\n", axis, size);
        inside += fmt::format("{}in{}", inside.empty() ? "" : " && ", axis);
      } else {
        text += position_text(op.mode, axis, size);
      }
      text += fmt::format("j{0} += c{0};\n", axis);
    }
    const std::string value =
        element(request, extents, 0, own, [](int axis) { return fmt::format("j{}", axis); });
    if (inside.empty()) return text + store_call(value, rank);
    const std::string other =
        has_value ? element(request, extents, 1, own, [](int) { return std::string("0"); })
                  : literal(register_type(request.inputs[0].type.dtype), 0);
    text += fmt::format("{} value = {};\nif ({}) value = {};\n", register_text(request), other,
                        inside, value);
    return text + store_call("value", rank);
  };
  const DataType dtype = seen.request().inputs[0].type.dtype;
  return make_per_element(seen, accumulator(dtype), "pad", body);
}

constexpr KernelEntry kAssemblyEntries[] = {
    entry<Concat, make_concat>("cuda.concat.parts"),
    entry<Pad, make_pad>("cuda.pad.strided"),
    entry<Tile, make_tile>("cuda.tile.strided"),
};

}  // namespace

std::span<const KernelEntry> assembly_entries() { return kAssemblyEntries; }

}  // namespace anneal::cuda
