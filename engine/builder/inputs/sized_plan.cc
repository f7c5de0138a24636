#include "anneal/engine/builder/inputs/sized_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/error.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/builder/inputs/known_memory.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

// The axes of input 0 that the indices in input 1 address.
struct IndexedAxes {
  int64_t first = 0;
  bool are_tuples = false;  // the last axis of the indices goes through the axes
};

std::optional<IndexedAxes> indexed_axes(const Op& op) {
  if (const auto* gather = std::get_if<Gather>(&op)) return IndexedAxes{gather->axis};
  if (const auto* gather = std::get_if<GatherElements>(&op)) return IndexedAxes{gather->axis};
  if (const auto* gather = std::get_if<GatherND>(&op)) return IndexedAxes{gather->batch_dims, true};
  if (const auto* scatter = std::get_if<ScatterElements>(&op)) return IndexedAxes{scatter->axis};
  if (std::holds_alternative<ScatterND>(op)) return IndexedAxes{0, true};
  return std::nullopt;
}

// Inference over steps, on numbers: of a size that only values decide nothing is known.
class PlanSizing {
 public:
  PlanSizing(const Plan& plan, std::span<const Tensor> weights, const SymbolValues& symbols)
      : plan_(plan),
        weights_(weights),
        symbols_(symbols),
        values_(plan.sizes->expression_count()),
        memory_(plan, [this](Size size) { return number_of(size); }) {
    symbols_.resize(plan.sizes->symbols().size());
    result_.facts.resize(plan.slots.size());
    is_known_.resize(plan.slots.size());
    for (const Step& step : plan.steps)
      for (const uint32_t output : step.outputs) is_known_[output] = true;
    for (const Plan& body : plan.bodies) {
      Signature& signature = bodies_.emplace_back();
      for (const uint32_t input : body.inputs)
        signature.inputs.push_back(numbers_of(body.slots[input].type));
      for (const uint32_t output : body.outputs)
        signature.outputs.push_back(numbers_of(body.slots[output].type));
    }
  }

  SizedPlan run() {
    for (const uint32_t input : plan_.inputs) know(input);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto text = infer(plan_.steps[i]);
      if (!text) continue;
      result_.complaint = {i, *text, false, short_axis(plan_.steps[i])};
      return std::move(result_);
    }
    return std::move(result_);
  }

  std::vector<Fact> run_body(std::span<const Fact> inputs) {
    for (size_t i = 0; i < inputs.size() && i < plan_.inputs.size(); ++i) {
      result_.facts[plan_.inputs[i]] = inputs[i];
      is_known_[plan_.inputs[i]] = true;
    }
    for (const Step& step : plan_.steps) {
      const auto text = infer(step);
      if (!text) continue;
      complain_softly(step,
                      fmt::format("step \"{}\" ({}): {}", step.name, to_string(step.op), *text));
      for (const uint32_t output : step.outputs) {
        know(output);
        memory_.write(output, result_.facts[output]);
      }
    }
    return std::move(result_.facts);
  }

 private:
  Size number_of(Size size) {
    if (size.known() || size.is_unknown()) return size;
    std::optional<Size>& value = values_[size.expression()];
    if (!value) {
      const auto symbols = plan_.sizes->symbols_in(size);
      const bool is_known = std::ranges::all_of(
          symbols, [&](uint32_t symbol) { return symbols_[symbol].has_value(); });
      value = is_known ? Size(plan_.sizes->evaluate(size, symbols_)) : Size::unknown();
    }
    return *value;
  }
  Type numbers_of(Type type) {
    for (int axis = 0; axis < type.shape.rank(); ++axis)
      type.shape[axis] = number_of(type.shape[axis]);
    return type;
  }
  void know(uint32_t slot) {
    is_known_[slot] = true;
    result_.facts[slot].type = numbers_of(plan_.slots[slot].type);
  }

  // A view that no step writes.
  void know_view(uint32_t slot) {
    know(slot);
    if (plan_.slots[slot].storage == Storage::kView)
      result_.facts[slot].elements = memory_.read(slot, result_.facts[slot].type);
  }

  // Why the step does not accept its inputs; nullopt if it does.
  std::optional<std::string> infer(const Step& step) {
    try {
      if (std::holds_alternative<SizeTensor>(step.op) && step.epilogues.empty()) {
        know_sizes(step);
        return std::nullopt;
      }
      std::vector<InferInput> inputs;
      views_.clear();
      views_.reserve(step.inputs.size());
      for (const uint32_t input : step.inputs) {
        inputs.emplace_back();
        if (input == kNoSlot) continue;
        const Slot& slot = plan_.slots[input];
        if (!is_known_[input]) know_view(input);
        inputs.back().fact = &result_.facts[input];
        if (slot.storage != Storage::kWeight || !is_row_major_weight(slot, weights_[slot.offset]))
          continue;
        views_.push_back(kernel_view(weights_[slot.offset]));
        inputs.back().value = &views_.back();
      }
      const InferInputs all(inputs, numbers_, bodies_);
      Facts inferred =
          infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count), all);
      if (const auto* pad = std::get_if<Pad>(&step.op); pad && pad->mode == PadMode::kReflect)
        ask_reflections(step, all);
      for (size_t k = 0; k < step.outputs.size(); ++k)
        if (auto text = take(step, step.outputs[k], std::move(inferred[k]))) return text;
      if (const auto* condition = std::get_if<If>(&step.op)) ask_bodies(*condition, step);
      return failed_requirement(step);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      return error.what();
    }
  }

  void know_sizes(const Step& step) {
    const auto& op = std::get<SizeTensor>(step.op);
    const uint32_t output = step.outputs[0];
    know(output);
    std::vector<Size> elements;
    for (const Size size : op.elements) elements.push_back(number_of(size));
    if (elements.empty() || std::ranges::any_of(elements, [](Size size) { return size.known(); }))
      result_.facts[output].elements = std::move(elements);
    memory_.write(output, result_.facts[output]);
  }

  std::optional<std::string> take(const Step& step, uint32_t output, Fact inferred) {
    const Slot& slot = plan_.slots[output];
    const Type planned = numbers_of(slot.type);
    Shape& shape = inferred.type.shape;
    if (shape.rank() != planned.shape.rank()) return "another number of axes";
    bool is_empty = false;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const Size wanted = planned.shape[axis];
      if (shape[axis].known() && wanted.known() && shape[axis] != wanted)
        return fmt::format("\"{}\" would be {} instead of {}", slot.name, numbers_.text(shape),
                           numbers_.text(planned.shape));
      if (!shape[axis].known()) shape[axis] = wanted;
      is_empty = is_empty || (!slot.type.shape[axis].known() && shape[axis] == Size(0));
    }
    if (is_empty && !has_empty_input(step))
      complain_softly(step, fmt::format("\"{}\" would be {}, without elements", slot.name,
                                        numbers_.text(shape)));
    result_.facts[output] = std::move(inferred);
    memory_.write(output, result_.facts[output]);
    return std::nullopt;
  }

  // ONNX has no meaning for a reflection that is longer than the axis.
  void ask_reflections(const Step& step, const InferInputs& inputs) {
    const Shape& shape = inputs.shape(0);
    const auto pads = inputs.elements(1);
    const auto rank = static_cast<size_t>(shape.rank());
    for (size_t i = 0; pads && i < pads->size() && i < 2 * rank; ++i) {
      const Size size = shape[static_cast<int>(i % rank)], pad = (*pads)[i];
      if (size.known() && pad.known() && pad.value() > 0 && pad.value() >= size.value())
        complain_softly(step, fmt::format("a reflection of {} elements on an axis of {}",
                                          pad.value(), size.value()));
    }
  }

  // For a step that was refused: the first axis that its known indices exceed.
  std::optional<ShortAxis> short_axis(const Step& step) const {
    const auto axes = indexed_axes(step.op);
    if (!axes || step.op_input_count < 2) return std::nullopt;
    const uint32_t of = step.inputs[0];
    const auto& indices = result_.facts[step.inputs[1]];
    const Shape &shape = result_.facts[of].type.shape, &at = indices.type.shape;
    if (!indices.elements) return std::nullopt;
    const int64_t width = !axes->are_tuples                            ? 1
                          : at.rank() > 0 && at[at.rank() - 1].known() ? at[at.rank() - 1].value()
                                                                       : 0;
    for (size_t i = 0; width > 0 && i < indices.elements->size(); ++i) {
      const auto axis = static_cast<int>(axes->first + static_cast<int64_t>(i) % width);
      const Size index = (*indices.elements)[i];
      if (axis >= shape.rank() || !shape[axis].known() || !index.known()) continue;
      const int64_t wanted = index.value() < 0 ? -index.value() : index.value() + 1;
      if (wanted > shape[axis].value())
        return ShortAxis{of, axis, longest(*indices.elements, i, width)};
    }
    return std::nullopt;
  }

  // The size that all known indices of a column need.
  static int64_t longest(const std::vector<Size>& indices, size_t first, int64_t width) {
    int64_t wanted = 0;
    for (size_t i = first; i < indices.size(); i += static_cast<size_t>(width))
      if (indices[i].known())
        wanted =
            std::max(wanted, indices[i].value() < 0 ? -indices[i].value() : indices[i].value() + 1);
    return wanted;
  }

  void complain_softly(const Step& step, std::string text) {
    if (!result_.complaint)
      result_.complaint = {static_cast<size_t>(&step - plan_.steps.data()), std::move(text), true};
  }

  // Both bodies may run where values decide.
  void ask_bodies(const If& op, const Step& step) {
    const auto& condition = result_.facts[step.inputs[0]].elements;
    std::vector<int64_t> bodies = {op.then_body, op.else_body};
    if (condition && condition->size() == 1 && condition->front().known())
      bodies.erase(bodies.begin() + (condition->front().value() != 0 ? 1 : 0));
    std::vector<Fact> captures;
    for (size_t i = 1; i < step.op_input_count; ++i)
      captures.push_back(step.inputs[i] == kNoSlot ? Fact{} : result_.facts[step.inputs[i]]);
    for (const int64_t body : bodies) {
      if (body < 0 || body >= static_cast<int64_t>(plan_.bodies.size())) continue;
      PlanSizing inner(plan_.bodies[static_cast<size_t>(body)], weights_, symbols_);
      inner.run_body(captures);
      if (inner.result_.complaint) complain_softly(step, inner.result_.complaint->text);
    }
  }

  bool has_empty_input(const Step& step) const {
    return std::ranges::any_of(step.inputs, [&](uint32_t input) {
      if (input == kNoSlot) return false;
      const Shape& shape = result_.facts[input].type.shape;
      return std::ranges::find(shape, Size(0)) != shape.end();
    });
  }

  std::optional<std::string> failed_requirement(const Step& step) const {
    if (!std::holds_alternative<Require>(step.op)) return std::nullopt;
    const auto& elements = result_.facts[step.outputs[0]].elements;
    if (!elements || elements->empty() || elements->front() != Size(0)) return std::nullopt;
    return "a condition that the model needs does not hold";
  }

  const Plan& plan_;
  std::span<const Tensor> weights_;
  SymbolValues symbols_;
  std::vector<std::optional<Size>> values_;  // by expression
  SizeTable numbers_;                        // empty: there are only numbers
  KnownMemory memory_;
  SizedPlan result_;
  std::vector<bool> is_known_;  // by slot: a step writes it, or its type is known already
  std::vector<Signature> bodies_;
  std::vector<TensorView> views_;
};

}  // namespace

SizedPlan sized_plan(const Plan& plan, std::span<const Tensor> weights,
                     const SymbolValues& symbols) {
  try {
    return PlanSizing(plan, weights, symbols).run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return {{}, SizeComplaint{std::nullopt, error.what()}};
  }
}

std::vector<Fact> sized_body(const Plan& body, std::span<const Tensor> weights,
                             const SymbolValues& symbols, std::span<const Fact> inputs) {
  try {
    return PlanSizing(body, weights, symbols).run_body(inputs);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return std::vector<Fact>(body.slots.size());
  }
}

}  // namespace anneal
