// Prepares the shapes that were declared at build, and those of the caller, before a run.
#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/engine/run/declared_shapes.h"
#include "anneal/engine/run/plan_run.h"

namespace anneal {
namespace {

Dims without_axis(const Dims& dims, int axis) {
  Dims result;
  for (int i = 0; i < dims.rank(); ++i)
    if (i != axis) result.push_back(dims[i]);
  return result;
}

// Of the body's inputs as control_flow.cc gives them, in the first iteration of a loop. given: the
// dims of the step's inputs.
std::vector<Dims> body_inputs(const Op& op, const std::vector<Dims>& given) {
  std::vector<Dims> dims;
  const auto add_from = [&](size_t first) {
    dims.insert(dims.end(), given.begin() + static_cast<ptrdiff_t>(first), given.end());
  };
  if (std::holds_alternative<If>(op)) {
    add_from(1);
  } else if (std::holds_alternative<Loop>(op)) {
    dims.resize(2);  // the number of the iteration and the condition
    add_from(2);
  } else {
    const Scan& scan = std::get<Scan>(op);
    add_from(0);
    for (size_t i = 0; i < scan.axes.size(); ++i) {
      Dims& sequence = dims[static_cast<size_t>(scan.carried) + i];
      sequence = without_axis(sequence, static_cast<int>(scan.axes[i]));
    }
  }
  return dims;
}

}  // namespace

void PlanRun::prepare(std::span<const Dims> input_dims, const SymbolValues& outer) {
  std::vector<Dims> of_inputs(input_dims.begin(), input_dims.end());
  ports_.swap_input_dims(of_inputs);
  try {
    bind(outer);
    prepare_bodies();
  } catch (...) {
    ports_.swap_input_dims(of_inputs);
    state_.now = nullptr;
    throw;
  }
  ports_.swap_input_dims(of_inputs);
  state_.now = nullptr;
}

void PlanRun::prepare_bodies() {
  for (const Step& step : state_.plan.steps) {
    const auto late = [&](uint32_t slot) {
      return slot != kNoSlot && state_.plan.slots[slot].storage == Storage::kDataDependent;
    };
    const auto bodies = bodies_of(step.op);
    if (bodies.empty() || std::any_of(step.inputs.begin(), step.inputs.end(), late)) continue;
    std::vector<Dims> given;
    for (const uint32_t slot : step.inputs)
      given.push_back(slot == kNoSlot ? Dims{} : state_.slots[slot].dims);
    const std::vector<Dims> dims = body_inputs(step.op, given);
    for (const BodyUse& use : bodies) {
      try {
        bodies_[static_cast<size_t>(use.body)]->prepare(dims, state_.now->plan.symbols);
      } catch (const Error& error) {
        // A body may be right for other shapes only: it says so if it is run.
        if (!is_of_caller(error.code())) throw;
      }
    }
  }
}

std::vector<std::vector<Dims>> declared_shapes(const Plan& plan) {
  const std::vector<bool> of_inputs = solvable_symbols(plan);
  const std::vector<SizeSymbol>& symbols = plan.sizes->symbols();
  const auto is_fixed = [&](size_t symbol) {
    return plan.batch_split && plan.batch_split->is_fixed && plan.batch_split->symbol == symbol;
  };
  bool any = false;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (!of_inputs[i] || is_fixed(i)) continue;
    if (symbols[i].bounds.max == Bounds{}.max) return {};
    any = true;
  }
  if (!any) return {};
  std::vector<std::vector<Dims>> shapes;
  for (const auto member : {&Bounds::opt, &Bounds::max, &Bounds::min}) {
    SymbolValues values;
    for (size_t i = 0; i < symbols.size(); ++i)
      values.emplace_back(is_fixed(i) ? symbols[i].bounds.max : symbols[i].bounds.*member);
    std::vector<Dims> dims;
    for (const uint32_t input : plan.inputs)
      dims.push_back(plan.sizes->evaluate(plan.slots[input].type.shape, values));
    if (std::find(shapes.begin(), shapes.end(), dims) == shapes.end()) shapes.push_back(dims);
  }
  return shapes;
}

}  // namespace anneal
