// Ops that put their output together from parts of their inputs: "cuda.concat.parts",
// "cuda.pad.strided", "cuda.tile.strided".
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

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

// The amounts of a Pad: constants, or input 1 of the function, which a run decides on.
class Pads {
 public:
  // index: the type of positions, "i64" or, where all are below 2^30, "i32".
  Pads(PadMode mode, std::optional<std::vector<int64_t>> known, int rank, std::string_view index)
      : mode_(mode), known_(std::move(known)), rank_(rank), index_(index) {}

  // Whether nothing is added to an axis, or taken away.
  bool leaves(int axis) const { return known_ && begin(axis) == 0 && end(axis) == 0; }
  // Of each padded axis: what is cropped before its first element, its size then, and what is added
  // before. Negative pads crop before the rest is extended.
  std::string sizes_text(Extents& extents) const {
    std::string text;
    for (int axis = 0; axis < rank_; ++axis) {
      if (leaves(axis)) continue;
      text += fmt::format(
          "const i64 begin{0} = {1}, end{0} = {2}, dim{0} = {3};\n"
          "const {4} added{0} = {4}(op::max(begin{0}, i64(0)));\n"
          "const {4} crop{0} = {4}(op::min(op::max(-begin{0}, i64(0)), dim{0}));\n"
          "const {4} size{0} = {4}(dim{0} - crop{0} -\n"
          "    op::min(op::max(-end{0}, i64(0)), dim{0} - crop{0}));\n",
          axis, amount_text(extents, axis), amount_text(extents, axis + rank_),
          extents.input_dim(0, axis), index_);
    }
    return text;
  }
  // Which element of x is at coordinates i0, i1, ...: j0, j1, ...; and, if it may be none, the
  // condition that it is one.
  struct Position {
    std::string text, inside;
  };
  Position position() const {
    Position at;
    for (int axis = 0; axis < rank_; ++axis) {
      at.text += fmt::format("{0} j{1} = i{1}{2};\n", index_, axis,
                             leaves(axis) ? "" : fmt::format(" - added{}", axis));
      if (leaves(axis)) continue;
      std::string inside;
      if (mode_ == PadMode::kConstant) {
        inside = fmt::format("j{0} >= 0 && j{0} < size{0}", axis);
      } else if (known_) {
        at.text += repeated_text(axis, fmt::format("size{}", axis));
      } else {
        inside = fmt::format("size{} > 0", axis);
        at.text += repeated_text(axis, fmt::format("op::max(size{}, {}(1))", axis, index_));
      }
      if (!inside.empty()) {
        at.text += fmt::format("const bool in{} = {};\n", axis, inside);
        at.inside += fmt::format("{}in{}", at.inside.empty() ? "" : " && ", axis);
      }
      at.text += fmt::format("j{0} += crop{0};\n", axis);
    }
    return at;
  }

 private:
  int64_t begin(int axis) const { return (*known_)[static_cast<size_t>(axis)]; }
  int64_t end(int axis) const { return (*known_)[static_cast<size_t>(axis + rank_)]; }
  std::string amount_text(Extents& extents, int i) const {
    return known_ ? literal(RegisterType::kI64,
                            static_cast<uint64_t>((*known_)[static_cast<size_t>(i)]))
                  : fmt::format("i64(x1[{} * {}])", i, extents.input_stride(1, 0));
  }
  // As cpu.pad.reference has it.
  std::string repeated_text(int axis, const std::string& size) const {
    if (mode_ == PadMode::kEdge)
      return fmt::format("j{0} = j{0} < 0 ? 0 : j{0} < {1} ? j{0} : {1} - 1;\n", axis, size);
    const std::string period =
        mode_ == PadMode::kWrap ? size : fmt::format("op::max({} * 2 - 2, {}(1))", size, index_);
    std::string text = fmt::format("j{0} %= {1};\nj{0} += j{0} < 0 ? {1} : 0;\n", axis, period);
    if (mode_ == PadMode::kReflect)
      text += fmt::format("j{0} = j{0} < {1} ? j{0} : {2} - j{0};\n", axis, size, period);
    return text;
  }

  PadMode mode_;
  std::optional<std::vector<int64_t>> known_;
  int rank_;
  std::string_view index_;
};

KernelResult make_pad(const Pad& op, const Request& original) {
  const int rank = original.inputs[0].type.shape.rank();
  if (original.inputs[1].type.shape[0] != Size(2 * rank))
    return refuse("another number of pads than two for each axis");
  auto known = integers(original.inputs[1]);
  const bool has_value = original.op_input_count > 2 && original.inputs[2].present;
  std::vector<int> inputs = {0};
  PerElement more;
  if (!known) {
    more.host_inputs = {inputs.size()};
    inputs.push_back(1);
  }
  const auto value_input = static_cast<int>(inputs.size());
  if (has_value) inputs.push_back(2);
  OperandViews seen(original, std::move(inputs));
  if (!has_epilogue(original)) seen.as_bits();
  const bool small = seen.is_small(seen.space()) && seen.is_small(original.inputs[0].type.shape);
  const Pads pads(op.mode, std::move(known), rank, small ? "i32" : "i64");
  more.before = [&](const Request&, Extents& extents) { return pads.sizes_text(extents); };
  const auto body = [&](const Request& request, Extents& extents) {
    const Shape& own = request.inputs[0].type.shape;
    const Pads::Position at = pads.position();
    const std::string value =
        element(request, extents, 0, own, [](int axis) { return fmt::format("j{}", axis); });
    if (at.inside.empty()) return at.text + store_call(value, rank);
    const std::string other = has_value ? element(request, extents, value_input, own,
                                                  [](int) { return std::string("0"); })
                                        : literal(register_type(request.inputs[0].type.dtype), 0);
    return at.text +
           fmt::format("{} value = {};\nif ({}) value = {};\n", register_text(request), other,
                       at.inside, value) +
           store_call("value", rank);
  };
  const DataType dtype = seen.request().inputs[0].type.dtype;
  return make_per_element(seen, accumulator(dtype), "pad", body, std::move(more));
}

constexpr KernelEntry kAssemblyEntries[] = {
    entry<Concat, make_concat>("cuda.concat.parts"),
    entry<Pad, make_pad>("cuda.pad.strided"),
    entry<Tile, make_tile>("cuda.tile.strided"),
};

}  // namespace

std::span<const KernelEntry> assembly_entries() { return kAssemblyEntries; }

}  // namespace anneal::cuda
