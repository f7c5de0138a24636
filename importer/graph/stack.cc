#include "anneal/importer/graph/stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using State = ScopedValue::State;

const Type& type_of(const Node& node, ValueId value) { return node.graph().value(value).type(); }

ScopedValue tensor(ValueId value) { return {.state = State::kImported, .value = value}; }

void expect_same(const Node& node, const Type& a, const Type& b, int first_axis) {
  bool differ = a.dtype != b.dtype || a.shape.rank() != b.shape.rank();
  for (int axis = first_axis; !differ && axis < a.shape.rank(); ++axis)
    differ = a.shape[axis].known() && b.shape[axis].known() && a.shape[axis] != b.shape[axis];
  if (differ)
    node.unsupported(
        "tensors of several types or sizes in a sequence whose length or places only a run knows");
}

// Of two stacks.
void expect_same_elements(const Node& node, ValueId a, ValueId b) {
  expect_same(node, type_of(node, a), type_of(node, b), 1);
}

ValueId with_leading_axis(Node& node, ValueId value, std::string_view suffix) {
  const Shape& shape = type_of(node, value).shape;
  std::vector<Size> longer = {Size(1)};
  longer.insert(longer.end(), shape.begin(), shape.end());
  return reshape(node, value, longer, suffix);
}

// Axis `from` becomes axis `to`; the others keep their order.
ValueId with_moved_axis(Node& node, ValueId value, int64_t from, int64_t to,
                        std::string_view suffix) {
  std::vector<int64_t> permutation(static_cast<size_t>(type_of(node, value).shape.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  permutation.erase(permutation.begin() + from);
  permutation.insert(permutation.begin() + to, from);
  if (std::ranges::is_sorted(permutation)) return value;
  return node.layer(Transpose{.permutation = permutation}, {value}, suffix);
}

ValueId element_at(Node& node, ValueId stack) {
  if (!node.has_input(1)) node.invalid("no position");
  node.dtype(1, kIndices);
  const ValueId place = reshape(node, node.input(1), {}, "place");
  return node.layer(Gather{.axis = 0}, {stack, place}, "element");
}

ValueId length_of(Node& node, ValueId stack) {
  const ValueId length = node.layer(ShapeOf{.start = 0, .end = 1}, {stack}, "length");
  return reshape(node, length, {}, "count");
}

ValueId concatenated(Node& node, ValueId stack) {
  const Shape shape = type_of(node, stack).shape;
  const bool has_new_axis = node.flag("new_axis", false);
  const int rank = has_new_axis ? shape.rank() : shape.rank() - 1;
  if (rank == 0) node.invalid("scalars are concatenated without a new axis");
  const int64_t axis = node.resolve_axis(node.integer("axis"), rank);
  const ValueId moved = with_moved_axis(node, stack, 0, axis, "moved");
  if (has_new_axis) return moved;
  std::vector<Size> merged(shape.begin() + 1, shape.end());
  Size& size = merged[static_cast<size_t>(axis)];
  size = node.sizes().mul(size, shape[0]);
  return reshape(node, moved, merged, "merged");
}

ValueId inserted(Node& node, ValueId stack) {
  const ValueId added = with_leading_axis(node, node.input(1), "added");
  expect_same_elements(node, added, stack);
  const auto places = node.has_input(2) ? node.known_integers(2) : std::nullopt;
  if (node.has_input(2) && (!places || places->size() != 1 || places->front() != 0))
    node.unsupported("a position inside a sequence whose length only a run knows");
  return node.layer(
      Concat{}, node.has_input(2) ? std::vector{added, stack} : std::vector{stack, added}, "stack");
}

}  // namespace

ScopedValue stack_of(ValueId tensor) { return {.state = State::kStack, .sequence = {tensor}}; }

bool is_sequence(const ScopedValue& value) {
  return value.state == State::kSequence || value.state == State::kStack ||
         value.state == State::kJoined;
}

void expect_same_type(const Node& node, ValueId a, ValueId b) {
  expect_same(node, type_of(node, a), type_of(node, b), 0);
}

ValueId stacked(Node& node, const ScopedValue& sequence, std::string_view suffix) {
  const std::vector<ValueId>& elements = sequence.sequence;
  if (sequence.state == State::kStack) return elements[0];
  if (sequence.state == State::kJoined) node.unsupported("tensors of several sizes in a sequence");
  if (elements.empty()) node.unsupported("an empty sequence where a tensor of it is read");
  std::vector<ValueId> parts;
  for (const ValueId element : elements) {
    expect_same_type(node, element, elements[0]);
    parts.push_back(
        with_leading_axis(node, element, fmt::format("{}/part{}", suffix, parts.size())));
  }
  return parts.size() == 1 ? parts[0] : node.layer(Concat{}, parts, suffix);
}

ValueId joined(Node& node, const ScopedValue& first, ValueId second, std::string_view suffix) {
  if (first.state == State::kSequence && first.sequence.empty()) return second;
  const ValueId before = stacked(node, first, std::string(suffix) + "/before");
  expect_same_elements(node, before, second);
  return node.layer(Concat{}, {before, second}, suffix);
}

ScopedValue import_stack_operator(std::string_view op, Node& node, ValueId stack) {
  if (op == "Identity") return stack_of(stack);
  if (op == "SequenceLength") return tensor(length_of(node, stack));
  if (op == "SequenceAt") return tensor(element_at(node, stack));
  if (op == "ConcatFromSequence") return tensor(concatenated(node, stack));
  if (op == "SequenceInsert") return stack_of(inserted(node, stack));
  node.unsupported("a sequence whose length only a run knows");
}

ScopedValue split_into_stack(Node& node, int axis, bool keeps_axis) {
  const ValueId parts = with_moved_axis(node, node.input(0), axis, 0, "parts");
  if (!keeps_axis) return stack_of(parts);
  const Shape& shape = type_of(node, parts).shape;
  std::vector<Size> longer(shape.begin(), shape.end());
  longer.insert(longer.begin() + 1 + axis, Size(1));
  return stack_of(reshape(node, parts, longer, "parts_with_axis"));
}

}  // namespace anneal
