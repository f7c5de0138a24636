#include "anneal/engine/run/memory/bound_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/memory/held_memory.h"

namespace anneal {
namespace {

// Sizes of a plan for one binding. Many slots share an expression, so each is evaluated once.
class SizeValues {
 public:
  SizeValues(const SizeTable& sizes, const SymbolValues& symbols)
      : sizes_(sizes), symbols_(symbols), values_(sizes.expression_count()) {}

  int64_t of(Size size) {
    if (size.known()) return size.value();
    if (size.is_unknown()) return sizes_.evaluate(size, symbols_);
    std::optional<int64_t>& value = values_[size.expression()];
    if (!value) value = sizes_.evaluate(size, symbols_);
    return *value;
  }
  Dims of(const Shape& shape) {
    Dims dims;
    for (const Size size : shape) dims.push_back(of(size));
    return dims;
  }
  // The value, or unknown() where values of tensors decide it.
  Size known_part(Size size) {
    if (size.known() || size.is_unknown()) return size;
    const auto symbols = sizes_.symbols_in(size);
    const bool solved = std::all_of(symbols.begin(), symbols.end(),
                                    [&](uint32_t symbol) { return symbols_[symbol].has_value(); });
    return solved ? Size(of(size)) : Size::unknown();
  }
  Type known_part(Type type) {
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      type.shape[axis] = known_part(type.shape[axis]);
    return type;
  }

 private:
  const SizeTable& sizes_;
  const SymbolValues& symbols_;
  std::vector<std::optional<int64_t>> values_;  // by expression
};

// Whether the fact means the same in every table of sizes.
bool is_of_numbers(const Fact& fact) {
  const auto is_number = [](Size size) { return size.known() || size.is_unknown(); };
  return std::ranges::all_of(fact.type.shape, is_number) &&
         (!fact.elements || std::ranges::all_of(*fact.elements, is_number));
}

// A static plan was checked when it was loaded; symbolic sizes meet reality here: inference runs
// again, on numbers. Facts of the binding before stay where all that they follow from is the same.
class InferenceCheck {
 public:
  InferenceCheck(const Plan& plan, std::span<const Tensor> weights, BoundPlan& bound,
                 SizeValues& values)
      : plan_(plan),
        weights_(weights),
        bound_(bound),
        values_(values),
        facts_(bound.facts),
        is_same_(plan.slots.size(), facts_.size() == plan.slots.size()) {
    facts_.resize(plan.slots.size());
    for (size_t i = 0; i < plan.slots.size(); ++i) {
      const Slot& slot = plan.slots[i];
      is_same_[i] = is_same_[i] && is_of_numbers(facts_[i]);
      if (slot.storage == Storage::kDataDependent)
        set_fact(i, {.type = values.known_part(slot.type), .elements = {}});
      else if (!is_same_[i] || bound.changed[i])
        set_fact(i, {.type = {slot.type.dtype, shape_of(bound.slots[i].dims)}, .elements = {}});
    }
    for (const Plan& body : plan.bodies) {
      bodies_.emplace_back();
      for (const uint32_t input : body.inputs)
        bodies_.back().inputs.push_back(values.known_part(body.slots[input].type));
      for (const uint32_t output : body.outputs)
        bodies_.back().outputs.push_back(values.known_part(body.slots[output].type));
    }
  }

  void run() {
    for (const Step& step : plan_.steps) {
      try {
        if (const auto* tensor = std::get_if<SizeTensor>(&step.op)) {
          know_sizes(step, *tensor);
        } else if (!is_same(step)) {
          check(step);
        }
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kInternal) throw;
        fail(ErrorCode::kInvalidArgument, fmt::format("with these inputs, step \"{}\" ({}): {}",
                                                      step.name, to_string(step.op), error.what()));
      }
    }
  }

 private:
  void set_fact(size_t slot, Fact fact) {
    is_same_[slot] = is_same_[slot] && facts_[slot] == fact;
    facts_[slot] = std::move(fact);
  }

  bool is_same(const Step& step) const {
    const auto is_one = [&](uint32_t slot) { return slot == kNoSlot || is_same_[slot]; };
    return bodies_of(step.op).empty() && std::ranges::all_of(step.inputs, is_one) &&
           std::ranges::all_of(step.outputs, is_one);
  }

  // Its shape depends on nothing; its contents are those of this binding.
  void know_sizes(const Step& step, const SizeTensor& op) {
    if (!step.epilogues.empty()) return;
    std::vector<Size> elements;
    for (const Size size : op.elements) elements.push_back(values_.known_part(size));
    Fact fact{.type = facts_[step.outputs[0]].type, .elements = {}};
    if (elements.size() <= static_cast<size_t>(kMaxKnownElements) &&
        (elements.empty() ||
         std::any_of(elements.begin(), elements.end(), [](Size size) { return size.known(); })))
      fact.elements = std::move(elements);
    set_fact(step.outputs[0], std::move(fact));
  }

  void check(const Step& step) {
    inputs_.clear();
    views_.clear();
    views_.reserve(step.inputs.size());
    for (const uint32_t input : step.inputs) {
      if (input == kNoSlot) {
        inputs_.push_back({});
        continue;
      }
      const Slot& slot = plan_.slots[input];
      const bool constant =
          slot.storage == Storage::kWeight && is_row_major_weight(slot, weights_[slot.offset]);
      if (constant) views_.push_back(kernel_view(weights_[slot.offset]));
      inputs_.push_back({&facts_[input], constant ? &views_.back() : nullptr});
    }
    Facts inferred = infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count),
                                 InferInputs(inputs_, sizes_, bodies_));
    for (size_t k = 0; k < step.outputs.size(); ++k) {
      const uint32_t output = step.outputs[k];
      const Shape& shape = inferred[k].type.shape;
      check_type(output, inferred[k].type);
      if (plan_.slots[output].storage != Storage::kDataDependent) {
        check_dims(output, shape);
        inferred[k].type.shape = facts_[output].type.shape;
      }
      set_fact(output, std::move(inferred[k]));
    }
  }

  // An operator from outside may infer another type than when the engine was built.
  void check_type(uint32_t output, const Type& type) const {
    const Type& planned = plan_.slots[output].type;
    if (type.dtype != planned.dtype || type.shape.rank() != planned.shape.rank())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" would be {}{} instead of {}{}", plan_.slots[output].name,
                       to_string(type.dtype), sizes_.text(type.shape), to_string(planned.dtype),
                       plan_.sizes->text(planned.shape)));
  }

  void check_dims(uint32_t output, const Shape& shape) const {
    const Dims& dims = bound_.slots[output].dims;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis].known() && shape[axis].value() != dims[axis])
        fail(ErrorCode::kInvalidArgument,
             fmt::format("\"{}\" would be {} instead of {}", plan_.slots[output].name,
                         sizes_.text(shape), to_string(dims)));
  }

  const Plan& plan_;
  std::span<const Tensor> weights_;
  const BoundPlan& bound_;
  SizeValues& values_;
  SizeTable sizes_;            // of reals alone; other sizes are numbers
  std::vector<Fact>& facts_;   // by slot: of the binding before, until they are set
  std::vector<bool> is_same_;  // by slot: the fact is that of the binding before
  std::vector<Signature> bodies_;
  std::vector<InferInput> inputs_;
  std::vector<TensorView> views_;
};

std::string producer_text(const Plan& plan, uint32_t slot) {
  for (const Step& step : plan.steps)
    if (std::find(step.outputs.begin(), step.outputs.end(), slot) != step.outputs.end())
      return fmt::format("with these inputs, step \"{}\" ({})", step.name, to_string(step.op));
  return fmt::format("with these inputs, \"{}\"", plan.slots[slot].name);
}

void set_slots(const Plan& plan, BoundPlan& bound, SizeValues& values) {
  bound.changed.assign(plan.slots.size(), bound.slots.empty());
  bound.slots.resize(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    TensorView& view = bound.slots[i];
    if (slot.storage == Storage::kDataDependent) {
      view = {};
      view.dtype = slot.type.dtype;
      bound.changed[i] = true;
      continue;
    }
    with_context([&] { return producer_text(plan, static_cast<uint32_t>(i)); },
                 [&] {
                   const Dims dims = values.of(slot.type.shape), strides = values.of(slot.strides);
                   if (!bound.changed[i] && dims == view.dims && strides == view.strides) return;
                   static_cast<void>(extent(dims, strides));
                   view = TensorView(slot.type.dtype, dims, strides, nullptr);
                   bound.changed[i] = true;
                 });
  }
}

void place_views(const Plan& plan, BoundPlan& bound, SizeValues& values) {
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.storage != Storage::kView) continue;
    const TensorView &view = bound.slots[i], &base = bound.slots[slot.base];
    uint64_t& place = bound.offsets[i];
    if (count(view.dims) == 0) {  // it begins nowhere
      place = 0;
      continue;
    }
    const int64_t offset = values.of(slot.base_offset);
    const uint64_t bytes = static_cast<uint64_t>(offset) * size_of(view.dtype);
    if (place == bytes && !bound.changed[i] && !bound.changed[slot.base]) continue;
    if (offset < 0 || offset > extent(base.dims, base.strides) - extent(view.dims, view.strides))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("with these inputs \"{}\" reaches beyond its memory", slot.name));
    place = bytes;
  }
}

void place_arena(const Plan& plan, bool fixed, BoundPlan& bound) {
  const auto is_in_arena = [&](size_t slot) { return plan.slots[slot].storage == Storage::kArena; };
  if (fixed) {
    bound.arena_bytes = plan.arena_bytes;
    for (size_t i = 0; i < plan.slots.size(); ++i)
      if (is_in_arena(i)) bound.offsets[i] = plan.slots[i].offset;
    return;
  }
  bool is_as_before = !bound.arena_bytes.empty();
  for (size_t i = 0; i < plan.slots.size() && is_as_before; ++i)
    is_as_before = !bound.changed[i] || !is_in_arena(i);
  if (is_as_before) return;
  bound.arena_bytes.resize(plan.devices.size());
  for (size_t device = 0; device < plan.devices.size(); ++device) {
    const Placement placement = place(arena_lifetimes(plan, bound, device));
    bound.arena_bytes[device] = placement.total;
    size_t buffer = 0;
    for (size_t i = 0; i < plan.slots.size(); ++i)
      if (is_in_arena(i) && plan.slots[i].device == device)
        bound.offsets[i] = placement.offsets[buffer++];
  }
}

}  // namespace

size_t held_bytes(const BoundPlan& bound) {
  size_t bytes = vector_bytes(bound.symbols) + vector_bytes(bound.slots) +
                 vector_bytes(bound.offsets) + vector_bytes(bound.arena_bytes) +
                 vector_bytes(bound.facts) + bound.changed.capacity() / 8;
  for (const Fact& fact : bound.facts)
    if (fact.elements) bytes += vector_bytes(*fact.elements);
  return bytes;
}

uint64_t bytes_of(const TensorView& view) {
  return static_cast<uint64_t>(extent(view.dims, view.strides)) * size_of(view.dtype);
}

std::vector<Lifetime> arena_lifetimes(const Plan& plan, const BoundPlan& bound, size_t device) {
  std::vector<Lifetime> lifetimes;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.storage == Storage::kArena && slot.device == device)
      lifetimes.push_back({bytes_of(bound.slots[i]), slot.first_step, slot.last_step});
  }
  return lifetimes;
}

BoundPlan bind_shapes(const Plan& plan, std::span<const Tensor> weights,
                      std::span<const Dims> dims_of_inputs, const SymbolValues& outer,
                      BoundPlan before) {
  BoundPlan bound = std::move(before);
  bound.symbols = solve_symbols(plan, dims_of_inputs, outer);
  SizeValues values(*plan.sizes, bound.symbols);
  set_slots(plan, bound, values);
  const bool fixed = is_static(plan);
  if (!fixed) InferenceCheck(plan, weights, bound, values).run();
  bound.offsets.resize(plan.slots.size());
  place_views(plan, bound, values);
  place_arena(plan, fixed, bound);
  return bound;
}

std::string fullest_step(const Plan& plan, const BoundPlan& bound) {
  std::vector<uint64_t> live(plan.steps.size() + 1);
  for (const Lifetime& life : arena_lifetimes(plan, bound, 0))
    for (size_t step = life.first; step <= life.last && step < live.size(); ++step)
      live[step] += life.bytes;
  const auto step = static_cast<size_t>(std::max_element(live.begin(), live.end()) - live.begin());
  return step < plan.steps.size() ? fmt::format("step \"{}\" ({})", plan.steps[step].name,
                                                to_string(plan.steps[step].op))
                                  : "no step";
}

std::vector<uint64_t> fixed_arena_bytes(const Plan& plan, std::span<const Tensor> weights) {
  if (is_static(plan)) return plan.arena_bytes;
  const auto dims = fixed_batch_dims(plan);
  return dims ? bind_shapes(plan, weights, *dims).arena_bytes : std::vector<uint64_t>();
}

}  // namespace anneal
