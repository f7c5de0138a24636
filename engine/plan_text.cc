#include <fmt/format.h>

#include <iterator>

#include "anneal/engine/plan_text.h"
#include "anneal/graph/text/text.h"
#include "anneal/graph/text/text_rules.h"

namespace anneal {
namespace {

std::string_view storage_text(Storage storage) {
  switch (storage) {
    case Storage::kInput:
      return "input";
    case Storage::kOutput:
      return "output";
    case Storage::kWeight:
      return "weight";
    case Storage::kArena:
      return "arena";
    case Storage::kView:
      return "view";
    case Storage::kDataDependent:
      return "late";
  }
  return "?";
}

// " on sm_90", where there are several devices.
std::string on_device(const Plan& plan, size_t device) {
  return plan.devices.size() == 1 ? "" : " on " + plan.devices[device];
}

std::string slot_text(const Plan& plan, const Slot& slot, bool is_static) {
  std::string text = fmt::format("{} {}{}", to_string(slot.type, *plan.sizes),
                                 storage_text(slot.storage), on_device(plan, slot.device));
  if (slot.storage == Storage::kWeight) text += fmt::format(" {}", slot.offset);
  if (slot.storage == Storage::kArena) {
    if (is_static) text += fmt::format(" at {}", slot.offset);
    text += fmt::format(", steps {}..{}", slot.first_step, slot.last_step);
  }
  if (slot.storage == Storage::kView)
    text += fmt::format(" of %{} from {}", slot.base, plan.sizes->text(slot.base_offset));
  SizeTable sizes = *plan.sizes;
  if (slot.strides != row_major_strides(slot.type.shape, sizes))
    text += fmt::format(", strides {}", plan.sizes->text(slot.strides));
  return text;
}

std::string step_text(const Plan& plan, const Step& step, DescribeTactic describe) {
  std::string outputs, inputs;
  for (const uint32_t output : step.outputs)
    outputs += fmt::format("{}%{}", outputs.empty() ? "" : ", ", output);
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const std::string_view separator = i == 0 ? "" : i == step.op_input_count ? "; " : ", ";
    inputs += step.inputs[i] == kNoSlot ? fmt::format("{}_", separator)
                                        : fmt::format("{}%{}", separator, step.inputs[i]);
  }
  std::string text = fmt::format("{} = {}({}){} {}", outputs, step.kernel, inputs,
                                 on_device(plan, step.device), to_string(step.op, *plan.sizes));
  for (const Program& program : step.epilogues)
    text += fmt::format(" epilogue=\"{}\"", to_string(program));
  if (describe != nullptr && !step.tactic.empty())
    text += fmt::format(" tactic=\"{}\"", describe(step.kernel, step.tactic));
  return text;
}

std::string saving_text(const Decision& decision) {
  if (decision.saved_launches == 0 && decision.saved_bytes == 0) return "";
  return fmt::format(" (saves {} launches, {} bytes)", decision.saved_launches,
                     decision.saved_bytes);
}

void write(fmt::appender to, const Plan& plan, const std::string& indent, DescribeTactic describe) {
  const bool is_static = !plan.arena_bytes.empty();
  for (size_t i = 0; i < plan.arena_bytes.size(); ++i)
    if (plan.arena_bytes[i] != 0)
      fmt::format_to(to, "{}arena{} {} bytes\n", indent, on_device(plan, i), plan.arena_bytes[i]);
  for (size_t i = 0; i < plan.slots.size(); ++i)
    fmt::format_to(to, "{}slot %{} {} {}\n", indent, i, text::quoted(plan.slots[i].name),
                   slot_text(plan, plan.slots[i], is_static));
  for (size_t i = 0; i < plan.steps.size(); ++i)
    fmt::format_to(to, "{}step {} {} {}\n", indent, i, text::quoted(plan.steps[i].name),
                   step_text(plan, plan.steps[i], describe));
  for (size_t i = 0; i < plan.bodies.size(); ++i) {
    fmt::format_to(to, "{}body {} {}\n", indent, i, text::quoted(plan.bodies[i].name));
    write(to, plan.bodies[i], indent + "  ", describe);
  }
  for (const Decision& decision : plan.decisions)
    fmt::format_to(to, "{}decision {}: {}: {}{}{}\n", indent, decision.stage, decision.subject,
                   decision.refused ? "refused: " : "", decision.text, saving_text(decision));
}

}  // namespace

std::string to_string(const Plan& plan) { return to_string(plan, nullptr); }

std::string to_string(const Plan& plan, DescribeTactic describe) {
  fmt::memory_buffer out;
  const fmt::appender to(out);
  fmt::format_to(to, "plan {} for {}", text::quoted(plan.name), plan.target);
  if (plan.profile > 0) fmt::format_to(to, ", profile {}", plan.profile);
  fmt::format_to(to, "\n");
  for (const SizeSymbol& symbol : plan.sizes->symbols())
    fmt::format_to(to, "size {} in {}..{} opt {}\n", symbol.name, symbol.bounds.min,
                   symbol.bounds.max, symbol.bounds.opt);
  for (size_t i = 0; i < plan.input_defaults.size(); ++i)
    if (plan.input_defaults[i] != kNoDefault)
      fmt::format_to(to, "default of %{} weight {}\n", plan.inputs[i], plan.input_defaults[i]);
  for (const auto [input, output] : plan.states)
    fmt::format_to(to, "state %{} from %{}\n", plan.inputs[input], plan.outputs[output]);
  write(to, plan, "", describe);
  return fmt::to_string(out);
}

}  // namespace anneal
