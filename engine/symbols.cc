#include "anneal/engine/symbols.h"

#include <fmt/format.h>

#include <algorithm>

namespace anneal {

SymbolValues solve_symbols(const Plan& plan, std::span<const Dims> dims_of_inputs,
                           const SymbolValues& known) {
  SymbolValues values = known;
  values.resize(plan.sizes->symbols().size());
  std::vector<std::string_view> said_by(values.size(), "of the outer graph");
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Slot& slot = plan.slots[plan.inputs[i]];
    const Dims& dims = dims_of_inputs[i];
    const auto wrong = [&](std::string why) {
      fail(Code::kInvalidArgument,
           fmt::format("input \"{}\" has shape {}, the engine wants {}: {}", slot.name,
                       to_string(dims), plan.sizes->text(slot.type.shape), why));
    };
    if (dims.rank() != slot.type.shape.rank())
      wrong(fmt::format("{} axes instead of {}", dims.rank(), slot.type.shape.rank()));
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const Size size = slot.type.shape[axis];
      const auto symbol = plan.sizes->symbol_index(size);
      if (!symbol) continue;
      const auto& [name, bounds] = plan.sizes->symbols()[*symbol];
      if (values[*symbol] && *values[*symbol] != dims[axis])
        wrong(fmt::format("{} is {} here, but {} in input \"{}\"", name, dims[axis],
                          *values[*symbol], said_by[*symbol]));
      if (dims[axis] < bounds.min || dims[axis] > bounds.max)
        wrong(fmt::format("{} = {} is outside [{}, {}], for which the engine was built", name,
                          dims[axis], bounds.min, bounds.max));
      values[*symbol] = dims[axis];
      said_by[*symbol] = slot.name;
    }
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const int64_t wanted = plan.sizes->evaluate(slot.type.shape[axis], values);
      if (wanted != dims[axis])
        wrong(fmt::format("axis {} is {} instead of {}", axis, dims[axis], wanted));
    }
  }
  return values;
}

std::vector<bool> solvable_symbols(const Plan& plan, std::vector<bool> outside) {
  std::vector<bool> solvable = std::move(outside);
  solvable.resize(plan.sizes->symbols().size());
  for (const uint32_t input : plan.inputs)
    for (const Size size : plan.slots[input].type.shape)
      if (const auto symbol = plan.sizes->symbol_index(size)) solvable[*symbol] = true;
  return solvable;
}

bool contains_symbol(const SizeTable& sizes, Size size, uint32_t symbol) {
  if (size.known()) return false;
  return size.is_unknown() || std::ranges::count(sizes.symbols_in(size), symbol) > 0;
}

Shape port_shape(const Plan& plan, uint32_t slot) {
  Shape shape = plan.slots[slot].type.shape;
  const auto& split = plan.batch_split;
  if (split && split->is_fixed && shape.rank() > 0 &&
      plan.sizes->symbol_index(shape[0]) == split->symbol)
    shape[0] = plan.sizes->symbols()[split->symbol].bounds.max;
  return shape;
}

std::optional<std::vector<Dims>> fixed_batch_dims(const Plan& plan) {
  if (!plan.batch_split || !plan.batch_split->is_fixed) return std::nullopt;
  std::vector<Dims> dims;
  for (const uint32_t input : plan.inputs) {
    const Shape shape = port_shape(plan, input);
    if (!known(shape)) return std::nullopt;
    dims.push_back(dims_of(shape));
  }
  return dims;
}

bool depends_on_values(const Shape& shape, const SizeTable& sizes,
                       const std::vector<bool>& solvable) {
  return std::any_of(shape.begin(), shape.end(),
                     [&](Size size) { return !sizes.is_made_of(size, solvable); });
}

}  // namespace anneal
