#include "anneal/importer/graph/sequences.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/importer/graph/stack.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using Sequence = std::vector<ValueId>;

constexpr int64_t kMostElements = 4096;

// The place that an input names among `count`; otherwise the default.
int64_t place_of(Node& node, int input, int64_t count, int64_t otherwise) {
  if (!node.has_input(input)) return otherwise;
  node.dtype(input, kIndices);
  const auto places = node.integers_of_input(input, "a position in a sequence");
  if (places.size() != 1) node.invalid("a position that is not a scalar");
  if (places[0] < -count || places[0] >= count)
    node.invalid(fmt::format("position {} of a sequence of {}", places[0], count));
  return places[0] < 0 ? places[0] + count : places[0];
}

Sequence construct(Node& node) {
  Sequence elements;
  for (int i = 0; i < node.input_count(); ++i) {
    node.expect_same_dtype({0, i});
    elements.push_back(node.input(i));
  }
  if (elements.empty()) node.invalid("no inputs");
  return elements;
}

// Whether each part is one element.
bool splits_elements(Node& node) {
  if (!node.has_input(1)) return true;
  node.dtype(1, kIndices);
  const auto part = node.known_integers(1);
  return node.rank(1) == 0 && part && part->front() == 1;
}

// Sizes of the parts along an axis.
std::vector<int64_t> parts_of(Node& node, int axis) {
  const Size size = node.shape(0)[axis];
  if (!size.known()) node.unsupported("parts of an axis of unknown size");
  std::vector<int64_t> parts = {1};
  if (node.has_input(1)) parts = node.integers_of_input(1, "the sizes of parts");
  if (!node.has_input(1) || node.rank(1) == 0) {
    const int64_t part = parts.at(0);
    if (part < 1) node.invalid(fmt::format("parts of {} elements", part));
    parts.clear();
    if (size.value() / part >= kMostElements) node.unsupported("a sequence of many tensors");
    for (int64_t begin = 0; begin < size.value(); begin += part)
      parts.push_back(std::min(part, size.value() - begin));
  }
  int64_t sum = 0;
  for (const int64_t part : parts)
    if (part < 0 || __builtin_add_overflow(sum, part, &sum)) node.invalid("a negative part");
  if (sum != size.value())
    node.invalid(fmt::format("parts of {} elements in all, of {}", sum, size.value()));
  return parts;
}

ScopedValue split(Node& node) {
  node.expect_inputs(1, 2);
  const auto axis = node.resolve_axis(node.integer("axis", 0), node.rank(0));
  // ONNX ignores keepdims beside the sizes of parts. ONNX Runtime does not, and PyTorch's unbind()
  // relies on it.
  const bool are_elements = splits_elements(node);
  const bool keeps = node.flag("keepdims", true) || !are_elements;
  if (are_elements && !node.shape(0)[static_cast<int>(axis)].known())
    return split_into_stack(node, static_cast<int>(axis), keeps);
  const std::vector<int64_t> parts = parts_of(node, static_cast<int>(axis));
  const ValueId axes = node.integers_value({axis}, "axes");
  const ValueId steps = node.integers_value({1}, "steps");
  Sequence elements;
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueId from = node.integers_value({begin}, fmt::format("start{}", i));
    begin += parts[i];
    const ValueId to = node.integers_value({begin}, fmt::format("end{}", i));
    ValueId part =
        node.layer(Slice{}, {node.input(0), from, to, axes, steps}, fmt::format("part{}", i));
    if (!keeps) {
      std::vector<Size> rest(node.shape(0).begin(), node.shape(0).end());
      rest.erase(rest.begin() + axis);
      part = reshape(node, part, rest, fmt::format("element{}", i));
    }
    elements.push_back(part);
  }
  return {.state = ScopedValue::State::kSequence, .sequence = std::move(elements)};
}

Outputs concatenate(Node& node, const Sequence& elements) {
  if (elements.empty()) node.invalid("an empty sequence");
  const bool stacks = node.flag("new_axis", false);
  const auto shape_of = [&](ValueId value) { return node.graph().value(value).type().shape; };
  const int rank = shape_of(elements[0]).rank() + (stacks ? 1 : 0);
  const int64_t axis = node.resolve_axis(node.integer("axis"), rank);
  Sequence parts;
  for (size_t i = 0; i < elements.size(); ++i) {
    parts.push_back(elements[i]);
    if (!stacks) continue;
    const Shape shape = shape_of(elements[i]);
    std::vector<Size> longer(shape.begin(), shape.end());
    if (shape.rank() + 1 != rank) node.invalid("tensors of different rank are stacked");
    longer.insert(longer.begin() + axis, Size(1));
    parts.back() = reshape(node, parts.back(), longer, fmt::format("part{}", i));
  }
  if (parts.size() == 1) return {parts[0]};
  return node.result(Concat{.axis = axis}, parts);
}

}  // namespace

ScopedValue import_sequence(const anneal_onnx::NodeProto& proto, Node& node, Scope& scope,
                            UnsupportedReport& unsupported) {
  using State = ScopedValue::State;
  const std::string& op = proto.op_type();
  const auto sequence = [](Sequence elements) {
    ScopedValue known{.state = State::kSequence};
    known.sequence = std::move(elements);
    return known;
  };
  const auto value = [](ValueId id) { return ScopedValue{.state = State::kImported, .value = id}; };
  if (op == "SequenceEmpty") {
    node.ignore("dtype");
    return sequence({});
  }
  if (op == "SequenceConstruct") return sequence(construct(node));
  if (op == "SplitToSequence") return split(node);

  const bool given = proto.input_size() > 0 && !proto.input(0).empty();
  if (!given || !is_sequence(scope.use(proto.input(0), unsupported)))
    node.unsupported("a sequence known only at run time");
  const ScopedValue known = scope.use(proto.input(0), unsupported);
  if (known.state == State::kJoined) {
    if (op != "ConcatFromSequence") node.unsupported("a sequence of tensors that differ in size");
    node.ignore("axis"), node.ignore("new_axis");
    return value(known.sequence[0]);
  }
  if (known.state == State::kStack) return import_stack_operator(op, node, known.sequence[0]);
  // A place that only a run knows, among tensors of one type.
  if (op == "SequenceAt" && node.has_input(1) && !node.known_integers(1))
    return import_stack_operator(op, node, stacked(node, known, "stack"));
  Sequence elements = known.sequence;
  const auto count = static_cast<int64_t>(elements.size());
  if (op == "Identity") return sequence(std::move(elements));
  if (op == "SequenceLength")
    return value(node.result_constant(Tensor::of<int64_t>(DataType::kI64, {}, {{count}})));
  if (op == "SequenceAt") {
    if (count == 0) node.invalid("an empty sequence");
    if (!node.has_input(1)) node.invalid("no position");
    return value(elements[static_cast<size_t>(place_of(node, 1, count, 0))]);
  }
  if (op == "ConcatFromSequence") return value(concatenate(node, elements)[0]);
  if (op == "SequenceErase") {
    if (count == 0) node.invalid("an empty sequence");
    elements.erase(elements.begin() + place_of(node, 1, count, count - 1));
    return sequence(std::move(elements));
  }
  if (count >= kMostElements) node.unsupported("a sequence of many tensors");
  // Behind the last one is a place, too, but counted from the front.
  int64_t at = count;
  if (node.has_input(2)) {
    const auto places = node.integers_of_input(2, "a position in a sequence");
    if (places.size() != 1 || places[0] != count) at = place_of(node, 2, count, count);
  }
  elements.insert(elements.begin() + at, node.input(1));
  return sequence(std::move(elements));
}

}  // namespace anneal
