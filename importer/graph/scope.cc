#include "anneal/importer/graph/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

Scope Scope::body_scope(std::string body_prefix) {
  return {.prefix = std::move(body_prefix),
          .opsets = opsets,
          .model = model,
          .outer = this,
          .attributes = attributes,
          .depth = depth + 1};
}

void Scope::define(const std::string& name, ScopedValue known) {
  if (!values.emplace(name, std::move(known)).second)
    fail(ErrorCode::kInvalidModel, fmt::format("value \"{}\" is defined twice", name));
}

const ScopedValue& Scope::use(const std::string& name, UnsupportedReport& unsupported) {
  auto found = values.find(name);
  if (found == values.end() && outer) {
    ScopedValue known = outer->use(name, unsupported);
    if (known.value != ValueId::kNone) known.value = capture(known.value);
    for (ValueId& element : known.sequence) element = capture(element);
    found = values.emplace(name, std::move(known)).first;
  }
  if (found == values.end())
    fail(ErrorCode::kInvalidModel, fmt::format("value \"{}\" is produced by no node", name));
  const ScopedValue& known = found->second;
  if (known.state == ScopedValue::State::kLeftOut)
    unsupported.add(known.what, known.node, known.reason);
  return known;
}

const ScopedValue* Scope::find(const std::string& name) const {
  const auto found = values.find(name);
  if (found != values.end()) return &found->second;
  return outer ? outer->find(name) : nullptr;
}

// Whether every run knows these sizes before the body begins, whatever layers are left then.
bool Scope::known_outside(const std::vector<Size>& elements) const {
  const SizeTable& sizes = model->graph.sizes();
  std::vector<bool> symbols(sizes.symbols().size());
  for (const Scope* around = outer; around; around = around->outer) {
    const auto found = around->model->graph.symbols_of_inputs();
    for (size_t i = 0; i < symbols.size(); ++i) symbols[i] = symbols[i] || found[i];
  }
  return std::ranges::all_of(
      elements, [&](Size one) { return !one.is_unknown() && is_made_of(sizes, one, symbols); });
}

// Constants and known sizes are the body's own, anything else is an input.
ValueId Scope::capture(ValueId outer_value) {
  Graph& body = model->graph;
  const Graph& graph = outer->model->graph;
  if (&body == &graph) return outer_value;
  const auto [entry, is_new] = captured.try_emplace(outer_value);
  if (!is_new) return entry->second;
  const Value& value = graph.value(outer_value);
  const auto& elements = value.fact.elements;
  const auto& narrow_types = outer->model->narrow_types;
  const auto keep_narrow_type = [&] {
    if (const auto narrow = narrow_types.find(outer_value); narrow != narrow_types.end())
      model->narrow_types.emplace(entry->second, narrow->second);
    return entry->second;
  };
  if (value.constant) {
    entry->second = body.add_constant(value.name, *value.constant);
    return keep_narrow_type();
  }
  if (elements && value.type().dtype == DataType::kI64 && value.type().shape.rank() <= 1 &&
      known_outside(*elements)) {
    const LayerId sizes =
        body.add({.name = value.name,
                  .op = SizeTensor{.elements = *elements, .scalar = value.type().shape.rank() == 0},
                  .inputs = {},
                  .output_names = {value.name}});
    return entry->second = body.layer(sizes).outputs[0];
  }
  captures.push_back(outer_value);
  entry->second = body.add_input(value.name, value.type());
  const auto& open_ranks = outer->model->open_ranks;
  if (const auto open = open_ranks.find(outer_value); open != open_ranks.end())
    model->open_ranks.emplace(entry->second, open->second);
  return keep_narrow_type();
}

std::string Scope::graph_name(const std::string& output) const {
  const auto renamed = outer_names.find(output);
  return renamed != outer_names.end() ? renamed->second : prefix + output;
}

}  // namespace anneal
