// Rules of control flow: what a layer gives follows from the types of its bodies. A size of a body
// is a size of the outer graph only if every symbol in it is one that the layer's inputs have.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::refuse;

class Outer {
 public:
  explicit Outer(const InferInputs& inputs)
      : sizes_(inputs.sizes()), symbols_(sizes_.symbols().size()) {
    for (int i = 0; i < inputs.count(); ++i) {
      if (!inputs.has(i)) continue;
      for (const Size size : inputs.type(i).shape)
        for (const uint32_t symbol : sizes_.symbols_in(size)) symbols_[symbol] = true;
    }
  }

  Shape seen(const Shape& shape) const {
    Shape result;
    for (const Size size : shape)
      result.push_back(is_made_of(sizes_, size, symbols_) ? size : Size::unknown());
    return result;
  }

 private:
  const SizeTable& sizes_;
  std::vector<bool> symbols_;
};

// The shape of a value that is `a` in some runs and `b` in others.
Shape either(const Shape& a, const Shape& b) {
  Shape result;
  for (int axis = 0; axis < a.rank(); ++axis)
    result.push_back(a[axis] == b[axis] ? a[axis] : Size::unknown());
  return result;
}

void require_same_kind(const Type& a, const Type& b, std::string_view what) {
  if (a.dtype != b.dtype || a.container != b.container || a.shape.rank() != b.shape.rank())
    refuse(fmt::format("{}: {} of rank {} and {} of rank {}", what, to_string(a.dtype),
                       a.shape.rank(), to_string(b.dtype), b.shape.rank()));
}

// Inputs [from, end) of the layer are the body's, beginning with `first`.
void require_inputs(const InferInputs& inputs, int from, const Signature& body, size_t first) {
  const auto count = static_cast<size_t>(inputs.count() - from);
  if (body.inputs.size() != first + count)
    refuse(fmt::format("a body of {} inputs is given {}", body.inputs.size(), first + count));
  for (size_t i = 0; i < count; ++i) {
    const int at = from + static_cast<int>(i);
    const Type &given = inputs.type(at), &wanted = body.inputs[first + i];
    require_same_kind(given, wanted, fmt::format("input {} and the body's", at));
    for (int axis = 0; axis < given.shape.rank(); ++axis)
      rules::agree(given.shape[axis], wanted.shape[axis], inputs.sizes(), "sizes of body inputs");
  }
}

// One element, of any number of axes; where a size is open, the run checks.
void require_one_of(const Type& type, DataType dtype, std::string_view what,
                    const SizeTable& sizes) {
  const bool many =
      std::ranges::any_of(type.shape, [](Size size) { return size.known() && size.value() != 1; });
  if (type.dtype != dtype || many)
    refuse(fmt::format("the {} is {}{}, not one {}", what, to_string(type.dtype),
                       sizes.text(type.shape), to_string(dtype)));
}

int require_carried(int64_t carried, int64_t most) {
  if (carried < 0 || carried > most) refuse(fmt::format("{} carried values of {}", carried, most));
  return static_cast<int>(carried);
}

// A carried value begins as the layer's input and goes on as the body's output.
Fact carried_fact(const Type& begin, const Type& next, const Outer& outer) {
  require_same_kind(begin, next, "a carried value");
  return rules::make_fact(begin.dtype, either(begin.shape, outer.seen(next.shape)));
}

}  // namespace

std::string unmet_demand(std::span<const int64_t> given, std::span<const int64_t> wanted) {
  return fmt::format(
      "the model does not accept [{}] for [{}]: the name of the step is the unmet condition",
      fmt::join(given, ","), fmt::join(wanted, ","));
}

Facts infer(const Require&, const InferInputs& inputs) {
  require_one_of(inputs.type(0), DataType::kBool, "condition", inputs.sizes());
  for (int i = 1; i < inputs.count(); ++i)
    if (inputs.dtype(i) != DataType::kI64 || inputs.shape(i).rank() > 1)
      refuse("numbers for an error are no i64 vector");
  const auto condition = inputs.integers(0);
  if (condition && condition->size() == 1 && condition->front() == 0) {
    if (inputs.count() == 3 && inputs.integers(1) && inputs.integers(2))
      refuse(unmet_demand(*inputs.integers(1), *inputs.integers(2)));
    refuse(
        "the condition of this step is false with these sizes: build for other sizes "
        "(--shapes)");
  }
  return {rules::make_fact(inputs.dtype(0), inputs.shape(0), inputs.elements(0))};
}

Facts infer(const If& op, const InferInputs& inputs) {
  require_one_of(inputs.type(0), DataType::kBool, "condition", inputs.sizes());
  const Signature &then_body = inputs.body(op.then_body), &else_body = inputs.body(op.else_body);
  require_inputs(inputs, 1, then_body, 0);
  require_inputs(inputs, 1, else_body, 0);
  if (then_body.outputs.size() != else_body.outputs.size())
    refuse(fmt::format("branches of {} and {} outputs", then_body.outputs.size(),
                       else_body.outputs.size()));
  const Outer outer(inputs);
  Facts facts;
  for (size_t k = 0; k < then_body.outputs.size(); ++k) {
    const Type &a = then_body.outputs[k], &b = else_body.outputs[k];
    require_same_kind(a, b, fmt::format("output {} of the branches", k));
    facts.push_back(rules::make_fact(a.dtype, outer.seen(either(a.shape, b.shape))));
  }
  return facts;
}

namespace {

// How many iterations there are, if conditions do not matter.
Size counted_length(const InferInputs& inputs) {
  if (!inputs.has(0)) refuse("it is counted and has no trip count");
  const auto trips = inputs.elements(0);
  return trips && trips->size() == 1 ? rules::at_least(trips->front(), 0, inputs.sizes())
                                     : Size::unknown();
}

}  // namespace

Facts infer(const Loop& op, const InferInputs& inputs) {
  const int carried = require_carried(op.carried, inputs.count() - 2);
  const Signature& body = inputs.body(op.body);
  if (inputs.has(0)) require_one_of(inputs.type(0), DataType::kI64, "trip count", inputs.sizes());
  if (inputs.has(1)) require_one_of(inputs.type(1), DataType::kBool, "condition", inputs.sizes());
  require_inputs(inputs, 2, body, 2);
  require_one_of(body.inputs[0], DataType::kI64, "body's iteration", inputs.sizes());
  require_one_of(body.inputs[1], DataType::kBool, "body's condition", inputs.sizes());
  if (static_cast<int>(body.outputs.size()) < 1 + carried)
    refuse(fmt::format("a body of {} outputs for {} carried values", body.outputs.size(), carried));
  require_one_of(body.outputs[0], DataType::kBool, "body's next condition", inputs.sizes());
  const Size length = op.counted ? counted_length(inputs) : Size::unknown();
  const Outer outer(inputs);
  Facts facts;
  for (int k = 0; k < carried; ++k)
    facts.push_back(
        carried_fact(inputs.type(2 + k), body.outputs[1 + static_cast<size_t>(k)], outer));
  for (size_t k = 1 + static_cast<size_t>(carried); k < body.outputs.size(); ++k) {
    Shape shape{length};
    for (const Size size : outer.seen(body.outputs[k].shape)) shape.push_back(size);
    facts.push_back(rules::make_fact(body.outputs[k].dtype, shape));
  }
  return facts;
}

Facts infer(const Scan& op, const InferInputs& inputs) {
  const int carried = require_carried(op.carried, inputs.count());
  const int sequences =
      require_carried(static_cast<int64_t>(op.axes.size()), inputs.count() - carried);
  const Signature& body = inputs.body(op.body);
  if (op.reverse.size() != op.axes.size() || op.output_reverse.size() != op.output_axes.size())
    refuse("not as many directions as axes");
  if (sequences == 0) refuse("nothing to scan");
  if (body.outputs.size() != static_cast<size_t>(carried) + op.output_axes.size())
    refuse(fmt::format("a body of {} outputs, not {}", body.outputs.size(),
                       static_cast<size_t>(carried) + op.output_axes.size()));

  // The body sees sequences without their axis.
  Size length = Size::unknown();
  std::vector<Fact> sliced(static_cast<size_t>(sequences));
  std::vector<InferInput> given(inputs.all().begin(), inputs.all().end());
  for (int i = 0; i < sequences; ++i) {
    const auto at = static_cast<size_t>(i);
    const Type& type = inputs.type(carried + i);
    const int axis = rules::require_axis(op.axes[at], type.shape.rank());
    length = rules::agree(length, type.shape[axis], inputs, "lengths of sequences");
    Shape slice;
    for (int k = 0; k < type.shape.rank(); ++k)
      if (k != axis) slice.push_back(type.shape[k]);
    sliced[at] = rules::make_fact(type.dtype, slice);
    given[static_cast<size_t>(carried) + at] = {&sliced[at], nullptr};
  }
  require_inputs(InferInputs(given, inputs.sizes()), 0, body, 0);

  const Outer outer(inputs);
  Facts facts;
  for (int k = 0; k < carried; ++k)
    facts.push_back(carried_fact(inputs.type(k), body.outputs[static_cast<size_t>(k)], outer));
  for (size_t k = 0; k < op.output_axes.size(); ++k) {
    const Type& element = body.outputs[static_cast<size_t>(carried) + k];
    const int axis = rules::require_axis(op.output_axes[k], element.shape.rank() + 1);
    const Shape seen = outer.seen(element.shape);
    Shape shape;
    for (int i = 0; i <= seen.rank(); ++i) {
      if (i == axis) shape.push_back(length);
      if (i < seen.rank()) shape.push_back(seen[i]);
    }
    facts.push_back(rules::make_fact(element.dtype, shape));
  }
  return facts;
}

}  // namespace anneal
