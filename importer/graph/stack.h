// Stacks: sequences whose length only a run knows. Their tensors have the same type and lie along
// axis 0 of one tensor.
#pragma once
#include <string_view>

#include "anneal/importer/graph/scope.h"

namespace anneal {

ScopedValue stack_of(ValueId tensor);
bool is_sequence(const ScopedValue& value);
// The tensor of a stack, or the tensors of a sequence stacked; suffix: of the names of layers.
// Fails with kUnsupported if these have several types or are none.
ValueId stacked(Node& node, const ScopedValue& sequence, std::string_view suffix);
// Fails with kUnsupported if the types of two tensors surely differ.
void expect_same_type(const Node& node, ValueId a, ValueId b);
// The stack of the tensors of both, in this order. `first` may be a sequence of no tensors.
ValueId joined(Node& node, const ScopedValue& first, ValueId second, std::string_view suffix);
// SequenceAt, SequenceInsert, ... of a stack in input 0. Fails with kUnsupported where a stack
// cannot be the result.
ScopedValue import_stack_operator(std::string_view op, Node& node, ValueId stack);
// SplitToSequence into parts of one element along an axis of unknown size.
ScopedValue split_into_stack(Node& node, int axis, bool keeps_axis);

}  // namespace anneal
