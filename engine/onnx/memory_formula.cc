#include "anneal/engine/onnx/memory_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/error.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

constexpr size_t kLongest = 200;  // characters of a formula

class Formulas {
 public:
  explicit Formulas(const Plan& plan) : plan_(plan), sizes_(*plan.sizes) {
    for (const SizeSymbol& symbol : sizes_.symbols()) best_.emplace_back(symbol.bounds.opt);
  }

  // nullopt: the device has no activations.
  std::optional<ActivationFormula> activations(uint8_t device) {
    std::vector<int64_t> live(plan_.steps.size());
    for_buffers(device, [&](const Slot& slot) {
      const int64_t bytes = sizes_.evaluate(bytes_of(slot), best_);
      for (uint32_t step = slot.first_step; step <= slot.last_step && step < live.size(); ++step)
        live[step] += bytes;
    });
    const auto most = std::ranges::max_element(live);
    if (most == live.end() || *most == 0) return std::nullopt;
    const auto fullest = static_cast<uint32_t>(most - live.begin());
    Size sum = 0;
    for_buffers(device, [&](const Slot& slot) {
      if (slot.first_step <= fullest && fullest <= slot.last_step)
        sum = sizes_.add(sum, bytes_of(slot));
    });
    const Step& step = plan_.steps[fullest];
    return ActivationFormula{plan_.devices[device], sizes_.text(sum),
                             fmt::format("step \"{}\" ({})", step.name, to_string(step.op))};
  }

  std::string ports(const std::vector<uint32_t>& slots) {
    Size sum = 0;
    for (const uint32_t slot : slots) {
      const Type& type = plan_.slots[slot].type;
      sum = sizes_.add(sum, sizes_.mul(product(port_shape(plan_, slot), sizes_),
                                       static_cast<int64_t>(size_of(type.dtype))));
    }
    return sizes_.text(sum);
  }

 private:
  template <class Visit>
  void for_buffers(uint8_t device, Visit&& visit) const {
    for (const Slot& slot : plan_.slots)
      if (slot.storage == Storage::kArena && slot.device == device) visit(slot);
  }

  // From the first element to the end of the last one.
  Size bytes_of(const Slot& slot) {
    Size elements = 1;
    for (int axis = 0; axis < slot.type.shape.rank(); ++axis)
      elements = sizes_.add(elements,
                            sizes_.mul(sizes_.sub(slot.type.shape[axis], 1), slot.strides[axis]));
    return sizes_.mul(elements, static_cast<int64_t>(size_of(slot.type.dtype)));
  }

  const Plan& plan_;
  SizeTable sizes_;
  SymbolValues best_;
};

bool is_short(const MemoryFormula& formula) {
  return formula.inputs.size() <= kLongest && formula.outputs.size() <= kLongest &&
         std::ranges::all_of(formula.activations, [](const ActivationFormula& each) {
           return each.bytes.size() <= kLongest;
         });
}

}  // namespace

std::vector<uint32_t> staged_ports(const Plan& plan) {
  std::vector<uint32_t> slots = plan.outputs;
  if (plan.devices.size() > 1) slots.insert(slots.end(), plan.inputs.begin(), plan.inputs.end());
  return slots;
}

MemoryFormula memory_formula(const Plan& plan) {
  if (is_static(plan) || fixed_batch_dims(plan)) return {};
  try {
    Formulas formulas(plan);
    MemoryFormula formula;
    for (size_t device = 0; device < plan.devices.size(); ++device)
      if (auto activations = formulas.activations(static_cast<uint8_t>(device)))
        formula.activations.push_back(std::move(*activations));
    formula.inputs = formulas.ports(plan.inputs);
    formula.outputs = formulas.ports(plan.outputs);
    formula.staging = formulas.ports(staged_ports(plan));
    return is_short(formula) ? formula : MemoryFormula{};
  } catch (const Error& error) {
    // Sizes that do not go together, or an expression beyond the limits of the table.
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kUnsupported &&
        error.code() != ErrorCode::kInvalidModel)
      throw;
    return {};
  }
}

}  // namespace anneal
