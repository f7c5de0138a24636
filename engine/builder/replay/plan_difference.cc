#include "anneal/engine/builder/replay/plan_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "anneal/core/bytes.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

using Programs = std::vector<const Program*>;

// The programs of the op, which it then lacks in `rest`.
Programs programs_of(const Op& op, Op& rest) {
  Programs programs;
  rest = op;
  std::visit(
      [&]<class T>(const T& typed) {
        if constexpr (!std::is_same_v<T, std::monostate>) {
          T::fields(typed, [&](std::string_view, const auto& field) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Program>)
              programs.push_back(&field);
          });
          T::fields(std::get<T>(rest), [&](std::string_view, auto& field) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Program>)
              field = Program();
          });
        }
      },
      op);
  return programs;
}

Programs all_programs_of(const Step& step) {
  Op rest;
  Programs programs = programs_of(step.op, rest);
  for (const Program& epilogue : step.epilogues) programs.push_back(&epilogue);
  return programs;
}

bool is_equal_without_literals(const Program& a, const Program& b) {
  return std::ranges::equal(a.inputs(), b.inputs()) &&
         std::ranges::equal(a.results(), b.results()) &&
         std::ranges::equal(a.code(), b.code(), [](const Instruction& x, const Instruction& y) {
           Instruction with_literal_of_x = y;
           if (x.opcode == Opcode::kConstant) with_literal_of_x.immediate = x.immediate;
           return x == with_literal_of_x;
         });
}

size_t literals_that_differ(const Program& a, const Program& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.code().size(); ++i)
    count += a.code()[i].immediate != b.code()[i].immediate;
  return count;
}

std::vector<std::byte> bytes_of_sizes(const SizeTable& sizes) {
  ByteWriter to;
  sizes.save(to);
  return to.take();
}

// Without the operator of a library, which each file was read with.
std::vector<std::byte> bytes_of_op(const Op& op) {
  ByteWriter to;
  save(to, op);
  return to.take();
}

// Two plans, or two bodies of them.
class PlanPair {
 public:
  PlanPair(const Plan& engine, const Plan& made) : engine_(engine), made_(made) {}

  // Empty: nothing differs.
  std::string difference() {
    if (engine_.target != made_.target || engine_.devices != made_.devices)
      tell("the plan", fmt::format("for {}", fmt::join(engine_.devices, ", ")),
           fmt::format("for {}", fmt::join(made_.devices, ", ")));
    compare_ports("input", engine_.inputs, made_.inputs);
    compare_ports("output", engine_.outputs, made_.outputs);
    compare_symbols();
    compare_names_of_steps();
    for (size_t i = 0; text_.empty() && i < engine_.steps.size(); ++i)
      compare_steps(engine_.steps[i], made_.steps[i]);
    compare_slots();
    compare_rest();
    for (size_t i = 0; text_.empty() && i < engine_.bodies.size(); ++i)
      text_ = PlanPair(engine_.bodies[i], made_.bodies[i]).difference();
    return text_;
  }

 private:
  // The first difference counts.
  void tell(const std::string& what, std::string_view was, std::string_view is) {
    if (text_.empty())
      text_ = fmt::format("{} is {} in the engine and {} with the new model", what, was, is);
  }
  template <class T>
  void compare(const std::string& what, const T& was, const T& is) {
    if (text_.empty() && was != is) tell(what, fmt::format("{}", was), fmt::format("{}", is));
  }

  static std::string quoted(std::string_view name) { return fmt::format("\"{}\"", name); }
  std::string type_text(const Plan& plan, const Slot& slot) const {
    return to_string(slot.type, *plan.sizes);
  }
  void compare_types(const std::string& what, const Slot& was, const Slot& is) {
    compare(what, type_text(engine_, was), type_text(made_, is));
  }

  void compare_ports(std::string_view kind, const std::vector<uint32_t>& was,
                     const std::vector<uint32_t>& is) {
    compare(fmt::format("the number of {}s", kind), was.size(), is.size());
    for (size_t i = 0; text_.empty() && i < was.size(); ++i) {
      const Slot &old = engine_.slots[was[i]], &now = made_.slots[is[i]];
      compare(fmt::format("{} {}", kind, i), quoted(old.name), quoted(now.name));
      compare_types(fmt::format("{} \"{}\"", kind, old.name), old, now);
    }
  }

  void compare_symbols() {
    const auto texts = [](const Plan& plan) {
      std::vector<std::string> all;
      for (const SizeSymbol& symbol : plan.sizes->symbols())
        all.push_back(fmt::format("{} ({} to {}, best {})", symbol.name, symbol.bounds.min,
                                  symbol.bounds.max, symbol.bounds.opt));
      return all;
    };
    const std::vector<std::string> was = texts(engine_), is = texts(made_);
    compare("the number of open sizes", was.size(), is.size());
    for (size_t i = 0; text_.empty() && i < was.size(); ++i)
      compare(fmt::format("open size {}", i), was[i], is[i]);
  }

  void compare_names_of_steps() {
    if (!text_.empty()) return;
    std::map<std::string, int> more;  // in the engine than with the new model
    for (const Step& step : engine_.steps) ++more[step.name];
    for (const Step& step : made_.steps) --more[step.name];
    const auto name = [&](const Plan& plan, int sign) -> const Step* {
      for (const Step& step : plan.steps)
        if (more[step.name] * sign > 0) return &step;
      return nullptr;
    };
    const Step *lost = name(engine_, 1), *added = name(made_, -1);
    const auto text = [](const Step& step) {
      return fmt::format("layer \"{}\" ({}; ONNX nodes: {})", step.name, to_string(step.op),
                         fmt::join(step.origins, ", "));
    };
    if (lost != nullptr && added != nullptr)
      text_ =
          fmt::format("the engine has {}, and the new model makes {}", text(*lost), text(*added));
    else if (lost != nullptr)
      text_ = fmt::format("the new model makes no step for {} of the engine", text(*lost));
    else if (added != nullptr)
      text_ = fmt::format("the new model makes {}, which the engine does not have", text(*added));
    for (size_t i = 0; text_.empty() && i < engine_.steps.size(); ++i)
      compare(fmt::format("step {}", i), quoted(engine_.steps[i].name),
              quoted(made_.steps[i].name));
  }

  void compare_operands(const std::string& layer, std::string_view kind,
                        const std::vector<uint32_t>& was, const std::vector<uint32_t>& is) {
    compare(fmt::format("the number of {}s of {}", kind, layer), was.size(), is.size());
    const auto name = [](const Plan& plan, uint32_t slot) {
      return slot == kNoSlot ? std::string("none") : quoted(plan.slots[slot].name);
    };
    for (size_t i = 0; text_.empty() && i < was.size(); ++i) {
      const std::string what = fmt::format("{} {} of {}", kind, i, layer);
      compare(what, name(engine_, was[i]), name(made_, is[i]));
      if (!text_.empty() || was[i] == kNoSlot) continue;
      compare_types(fmt::format("{}, \"{}\",", what, engine_.slots[was[i]].name),
                    engine_.slots[was[i]], made_.slots[is[i]]);
      compare(fmt::format("the slot of {}", what), was[i], is[i]);
    }
  }

  void compare_steps(const Step& was, const Step& is) {
    const std::string layer = fmt::format("layer \"{}\"", was.name);
    compare(layer, to_string(was.op), to_string(is.op));
    compare(fmt::format("the list of ONNX nodes of {}", layer),
            fmt::format("{}", fmt::join(was.origins, ", ")),
            fmt::format("{}", fmt::join(is.origins, ", ")));
    compare_operands(layer, "input", was.inputs, is.inputs);
    compare_operands(layer, "output", was.outputs, is.outputs);
    compare(fmt::format("the number of the op's inputs of {}", layer), was.op_input_count,
            is.op_input_count);
    compare_ops(layer, was, is);
    compare(fmt::format("the kernel of {}", layer), was.kernel, is.kernel);
    compare(fmt::format("the device of {}", layer), int{was.device}, int{is.device});
    if (was.tactic != is.tactic || was.runner_up != is.runner_up ||
        was.runner_up_tactic != is.runner_up_tactic)
      tell(fmt::format("the tactic of {}, whose kernel is {},", layer, was.kernel), "another one",
           "this one");
  }

  void compare_ops(const std::string& layer, const Step& was, const Step& is) {
    if (!text_.empty()) return;
    Op rest_was, rest_is;
    programs_of(was.op, rest_was);
    programs_of(is.op, rest_is);
    if (bytes_of_op(rest_was) != bytes_of_op(rest_is))
      tell(layer, to_string(was.op, *engine_.sizes), to_string(is.op, *made_.sizes));
    const Programs old = all_programs_of(was), now = all_programs_of(is);
    compare(fmt::format("the number of programs of {}", layer), old.size(), now.size());
    for (size_t i = 0; text_.empty() && i < old.size(); ++i)
      if (!is_equal_without_literals(*old[i], *now[i]))
        tell(fmt::format("the program of {}", layer), to_string(*old[i]), to_string(*now[i]));
  }

  void compare_slots() {
    compare("the number of values", engine_.slots.size(), made_.slots.size());
    for (size_t i = 0; text_.empty() && i < engine_.slots.size(); ++i) {
      const Slot &was = engine_.slots[i], &is = made_.slots[i];
      compare(fmt::format("value {}", i), quoted(was.name), quoted(is.name));
      const std::string value = fmt::format("value \"{}\"", was.name);
      compare_types(value, was, is);
      compare(fmt::format("the kind of memory of {}", value), static_cast<int>(was.storage),
              static_cast<int>(is.storage));
      compare(fmt::format("the strides of {}", value), engine_.sizes->text(was.strides),
              made_.sizes->text(is.strides));
      const bool is_weight = was.storage == Storage::kWeight;
      const auto place = [&](const Plan& plan, const Slot& slot) {
        return fmt::format("device {}, byte {}, within {} from {}, steps {} to {}", slot.device,
                           is_weight ? 0 : slot.offset, static_cast<int32_t>(slot.base),
                           plan.sizes->text(slot.base_offset), slot.first_step, slot.last_step);
      };
      compare(fmt::format("the place of {}", value), place(engine_, was), place(made_, is));
    }
  }

  void compare_rest() {
    compare("the number of bodies", engine_.bodies.size(), made_.bodies.size());
    compare("the list of bytes of activations",
            fmt::format("{}", fmt::join(engine_.arena_bytes, ", ")),
            fmt::format("{}", fmt::join(made_.arena_bytes, ", ")));
    if (!text_.empty()) return;
    if (engine_.batch_split != made_.batch_split)
      tell("the batch", engine_.batch_split ? "run in parts" : "whole",
           made_.batch_split ? "run in parts" : "whole");
    const auto has = [](const Plan& plan) {
      std::vector<bool> defaults;
      for (const uint32_t weight : plan.input_defaults) defaults.push_back(weight != kNoDefault);
      return defaults;
    };
    if (has(engine_) != has(made_)) tell("the list of inputs with a default value", "one", "other");
    if (engine_.is_exact != made_.is_exact) tell("the plan", "exact or not", "the other");
    if (bytes_of_sizes(*engine_.sizes) != bytes_of_sizes(*made_.sizes))
      tell("the table of sizes", "one", "another one");
  }

  const Plan& engine_;
  const Plan& made_;
  std::string text_;
};

}  // namespace

std::string plan_difference(const Plan& engine, const Plan& made) {
  return PlanPair(engine, made).difference();
}

size_t changed_literals(const Plan& engine, const Plan& made) {
  size_t count = 0;
  for (size_t i = 0; i < engine.steps.size(); ++i) {
    const Programs was = all_programs_of(engine.steps[i]), is = all_programs_of(made.steps[i]);
    for (size_t k = 0; k < was.size(); ++k) count += literals_that_differ(*was[k], *is[k]);
  }
  for (size_t i = 0; i < engine.bodies.size(); ++i)
    count += changed_literals(engine.bodies[i], made.bodies[i]);
  return count;
}

bool has_same_indices(const Plan& engine, const Plan& made) {
  if (engine.input_defaults != made.input_defaults) return false;
  for (size_t i = 0; i < engine.slots.size(); ++i)
    if (engine.slots[i].offset != made.slots[i].offset) return false;
  for (size_t i = 0; i < engine.bodies.size(); ++i)
    if (!has_same_indices(engine.bodies[i], made.bodies[i])) return false;
  return true;
}

}  // namespace anneal
