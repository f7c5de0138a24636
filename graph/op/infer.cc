// infer() for any op, infer_layer() for whole layers, and their access to inputs.
#include "anneal/graph/op/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/size/real.h"
#include "anneal/graph/op/infer_rules.h"
#include "anneal/graph/op/op_traits.h"

namespace anneal {
namespace {

using rules::refuse;

// Scales and the like are f32 constants of no more elements; weights are none of the size table's.
constexpr int64_t kMaxReals = 16;

// Chosen so that one more operation on such a size stays below the limits of the size table.
constexpr uint32_t kMostSizeNodes = 4000, kMostSizeDepth = 100;

// The run finds it as it finds a size that depends on values.
void forget_if_large(Size& size, const SizeTable& sizes) {
  const auto cost = sizes.cost_of(size);
  if (cost.nodes > kMostSizeNodes || cost.depth > kMostSizeDepth) size = Size::unknown();
}

// No rule may give a size that is surely negative, nor more elements than can be counted.
void check_sizes(const Facts& facts, const SizeTable& sizes) {
  for (const Fact& fact : facts) {
    const Shape& shape = fact.type.shape;
    for (const Size& size : shape)
      if (!size.is_unknown() && sizes.range(size).max < 0)
        refuse("a negative size in the output's shape " + sizes.text(shape));
    if (!known(shape)) continue;
    int64_t total = 1;
    for (const Size& size : shape)
      if (__builtin_mul_overflow(total, std::max<int64_t>(size.value(), 1), &total))
        refuse("more than 2^63 elements in the output's shape " + sizes.text(shape));
  }
}

}  // namespace

const Type& InferInputs::type(int i) const {
  if (!has(i)) refuse(fmt::format("input {} is absent", i));
  const Type& type = inputs_[static_cast<size_t>(i)].fact->type;
  if (type.container != Container::kTensor) refuse(fmt::format("input {} is not a tensor", i));
  return type;
}

void InferInputs::demand(Size a, Size b) const {
  if (demands_ && a != b && !a.is_unknown() && !b.is_unknown()) demands_->push_back({a, b});
}

const Signature& InferInputs::body(int64_t index) const {
  if (index < 0 || index >= static_cast<int64_t>(bodies_.size()))
    refuse(fmt::format("body {} of {}", index, bodies_.size()));
  return bodies_[static_cast<size_t>(index)];
}

std::optional<std::vector<Size>> InferInputs::elements(int i) const {
  if (!has(i)) return std::nullopt;
  const TensorView* view = value(i);
  if (view == nullptr) return inputs_[static_cast<size_t>(i)].fact->elements;
  if (view->dtype == DataType::kString || view->data == nullptr) return std::nullopt;
  if (anneal::count(view->dims) > kMaxKnownElements) return std::nullopt;
  const bool are_reals = view->dtype == DataType::kF32 && anneal::count(view->dims) <= kMaxReals;
  std::vector<Size> elements;
  rules::for_elements(view->dims, [&](const Dims& at) {
    const int64_t offset = rules::flat_index(at, view->strides);
    const Scalar scalar =
        load_scalar(view->dtype, view->data + offset * static_cast<int64_t>(size_of(view->dtype)));
    elements.push_back(are_reals ? RealSizes(sizes_).constant(
                                       static_cast<double>(scalar.as<float>()), RealType::kF32)
                                 : rules::whole_number(register_type(view->dtype), scalar));
  });
  return elements;
}

std::optional<std::vector<int64_t>> InferInputs::integers(int i) const {
  const auto sizes = elements(i);
  if (!sizes) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Size& size : *sizes) {
    if (!size.known()) return std::nullopt;
    integers.push_back(size.value());
  }
  return integers;
}

Arity input_arity(const Op& op) {
  const OpTraits& traits = traits_of(op);
  Arity arity = *traits.arity;
  const Program* program = program_of(op);
  if (program && program->empty() && !std::holds_alternative<Pointwise>(op)) arity.max = arity.min;
  if (const auto* recurrent = std::get_if<Recurrent>(&op))
    if (recurrent->kind != RecurrentKind::kLstm) arity.max = 6;
  return arity;
}

DataType accumulator(DataType dtype) { return is_half(dtype) ? DataType::kF32 : dtype; }

Facts infer(const Op& op, const InferInputs& inputs) {
  const Arity arity = input_arity(op);
  if (inputs.count() < arity.min || inputs.count() > arity.max)
    refuse(fmt::format("{} inputs for {}", inputs.count(), to_string(op)));
  Facts facts = std::visit(
      [&](const auto& one) -> Facts {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, std::monostate>) {
          refuse("a layer without an op");
        } else {
          return infer(one, inputs);
        }
      },
      op);
  check_sizes(facts, inputs.sizes());
  return facts;
}

namespace {

Facts infer_with_epilogues(const Op& op, std::span<const Program> epilogues, int op_input_count,
                           const InferInputs& inputs, std::span<const Dims> found) {
  if (op_input_count < 0 || op_input_count > inputs.count())
    refuse(fmt::format("{} of {} inputs are the op's", op_input_count, inputs.count()));
  Facts of_op = infer(op, inputs.first(op_input_count));
  check(found.empty() || found.size() == of_op.size(), "sizes are found for every output");
  for (size_t k = 0; k < found.size(); ++k) of_op[k].type.shape = shape_of(found[k]);
  auto further = inputs.all().subspan(static_cast<size_t>(op_input_count));
  if (epilogues.empty() && further.empty()) return of_op;
  if (!bodies_of(op).empty()) refuse("an epilogue or its inputs behind a body");
  if (epilogues.size() != of_op.size())
    refuse(fmt::format("{} epilogues for {} outputs", epilogues.size(), of_op.size()));

  Facts facts;
  for (size_t k = 0; k < epilogues.size(); ++k) {
    if (epilogues[k].empty()) {
      facts.push_back(std::move(of_op[k]));
      continue;
    }
    const size_t takes = epilogues[k].inputs().size();
    if (takes == 0 || takes - 1 > further.size())
      refuse(fmt::format("epilogue {} takes {} inputs, and {} are left", k, takes,
                         further.size() + 1));
    Fact accumulated = of_op[k];
    accumulated.type.dtype = accumulator(accumulated.type.dtype);
    std::vector<InferInput> all{{&accumulated, nullptr}};
    all.insert(all.end(), further.begin(), further.begin() + static_cast<ptrdiff_t>(takes) - 1);
    further = further.subspan(takes - 1);
    const Facts results =
        with_context([&] { return fmt::format("epilogue {}", k); },
                     [&] {
                       return rules::apply_program(epilogues[k], of_op[k].type.shape,
                                                   InferInputs(all, inputs.sizes()));
                     });
    facts.insert(facts.end(), results.begin(), results.end());
  }
  if (!further.empty()) refuse(fmt::format("{} inputs that no epilogue takes", further.size()));
  return facts;
}

}  // namespace

Facts infer_layer(const Op& op, std::span<const Program> epilogues, int op_input_count,
                  const InferInputs& inputs, std::span<const Dims> found) {
  Facts facts = infer_with_epilogues(op, epilogues, op_input_count, inputs, found);
  for (Fact& fact : facts) {
    fact.type.shape = rules::pinned(fact.type.shape, inputs.sizes());
    for (int axis = 0; axis < fact.type.shape.rank(); ++axis)
      forget_if_large(fact.type.shape[axis], inputs.sizes());
    if (fact.elements)
      for (Size& size : *fact.elements) forget_if_large(size, inputs.sizes());
  }
  return facts;
}

bool allows(Size inferred, Size size, const SizeTable& sizes) {
  return inferred == size ||
         (!sizes.representatives().empty() && !rules::surely_differ(inferred, size, sizes));
}

Shape broadcast(const Shape& a, const Shape& b, SizeTable& sizes, SizeDemands* demands) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  const int offset = longer.rank() - shorter.rank();
  for (int axis = 0; axis < shorter.rank(); ++axis) {
    Size& to = result[axis + offset];
    const Size other = shorter[axis];
    if (rules::surely_differ(to, other, sizes) && rules::surely_differ(to, 1, sizes) &&
        rules::surely_differ(other, 1, sizes))
      refuse(fmt::format("shapes {} and {} do not broadcast", sizes.text(a), sizes.text(b)));
    if (demands && to != other && !to.is_unknown() && !other.is_unknown() &&
        !sizes.may_be_one(to) && !sizes.may_be_one(other))
      demands->push_back({to, other});
    to = sizes.broadcast(to, other);
  }
  return result;
}

}  // namespace anneal
