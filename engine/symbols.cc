#include "anneal/engine/symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>

#include "anneal/core/fail.h"

namespace anneal {

namespace {

// The symbols of a plan and who gave them their values.
class SymbolSolver {
 public:
  SymbolSolver(const Plan& plan, std::span<const Dims> dims_of_inputs, const SymbolValues& known)
      : plan_(plan), sizes_(*plan.sizes), dims_(dims_of_inputs), values_(known) {
    values_.resize(sizes_.symbols().size());
    said_by_.resize(values_.size(), kOuter);
  }

  SymbolValues solve(bool is_outermost) {
    for (size_t i = 0; i < plan_.inputs.size(); ++i) take_symbols(i);
    if (is_outermost) take_fixed_symbols();
    for (size_t i = 0; i < plan_.inputs.size(); ++i) compare_sizes(i);
    if (is_outermost) compare_equal_sizes();
    return std::move(values_);
  }

 private:
  static constexpr size_t kOuter = ~size_t{0};

  // A symbol that the model wants to be a number is in no input: these have the number.
  void take_fixed_symbols() {
    for (const auto& [expression, stands] : sizes_.representatives())
      if (const auto symbol = sizes_.symbol_index(Size::expression(expression));
          symbol && !values_[*symbol] && stands.known())
        values_[*symbol] = stands.value();
  }

  // Sizes that the model wants to be equal.
  void compare_equal_sizes() const {
    for (const auto& [expression, stands] : sizes_.representatives()) {
      const Size size = Size::expression(expression);
      const int64_t a = sizes_.evaluate(size, values_), b = sizes_.evaluate(stands, values_);
      if (a != b)
        fail(ErrorCode::kInvalidArgument,
             fmt::format(
                 "the model requires the sizes {} and {} to be equal, but they are {} and {}: {}",
                 sizes_.text(size), sizes_.text(stands), a, b, given({size, stands})));
    }
  }

  void take_symbols(size_t input) {
    const Shape& shape = plan_.slots[plan_.inputs[input]].type.shape;
    const Dims& dims = dims_[input];
    if (dims.rank() != shape.rank())
      wrong(input, fmt::format("{} axes instead of {}", dims.rank(), shape.rank()));
    for (int axis = 0; axis < dims.rank(); ++axis) {
      const auto symbol = sizes_.symbol_index(shape[axis]);
      if (!symbol) continue;
      const auto& [name, bounds] = sizes_.symbols()[*symbol];
      if (values_[*symbol] && *values_[*symbol] != dims[axis])
        wrong(input, fmt::format("{} is {} here, but {} in {}", name, dims[axis], *values_[*symbol],
                                 sayer(*symbol)));
      if (dims[axis] < bounds.min || dims[axis] > bounds.max)
        wrong(input, fmt::format("{} = {} is outside [{}, {}], for which the engine was built",
                                 name, dims[axis], bounds.min, bounds.max));
      values_[*symbol] = dims[axis];
      said_by_[*symbol] = input;
    }
  }

  void compare_sizes(size_t input) const {
    const Shape& shape = plan_.slots[plan_.inputs[input]].type.shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int64_t wanted = sizes_.evaluate(shape[axis], values_);
      if (wanted == dims_[input][axis]) continue;
      const std::string values = shape[axis].known() ? "" : given({shape[axis]});
      wrong(input, fmt::format("axis {} is {} instead of {}{}{}", axis, dims_[input][axis], wanted,
                               values.empty() ? "" : ": ", values));
    }
  }

  // "n is 3 in input "x", m is 4 in input "y""
  std::string given(std::initializer_list<Size> of) const {
    std::set<uint32_t> symbols;
    for (const Size size : of)
      for (const uint32_t symbol : sizes_.symbols_in(size)) symbols.insert(symbol);
    std::string text;
    for (const uint32_t symbol : symbols)
      text +=
          fmt::format("{}{} is {} in {}", text.empty() ? "" : ", ", sizes_.symbols()[symbol].name,
                      values_[symbol].value_or(0), sayer(symbol));
    return text;
  }

  std::string sayer(uint32_t symbol) const {
    const size_t input = said_by_[symbol];
    return input == kOuter ? "the outer graph"
                           : fmt::format("input \"{}\"", plan_.slots[plan_.inputs[input]].name);
  }

  [[noreturn]] void wrong(size_t input, const std::string& why) const {
    const Slot& slot = plan_.slots[plan_.inputs[input]];
    fail(ErrorCode::kInvalidArgument,
         fmt::format("input \"{}\" has shape {}, the engine expects {}: {}", slot.name,
                     to_string(dims_[input]), sizes_.text(slot.type.shape), why));
  }

  const Plan& plan_;
  const SizeTable& sizes_;
  std::span<const Dims> dims_;
  SymbolValues values_;
  std::vector<size_t> said_by_;  // by symbol: an input
};

}  // namespace

SymbolValues solve_symbols(const Plan& plan, std::span<const Dims> dims_of_inputs,
                           const SymbolValues& known) {
  SymbolSolver solver(plan, dims_of_inputs, known);
  return solver.solve(known.empty());
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
                     [&](Size size) { return !is_made_of(sizes, size, solvable); });
}

}  // namespace anneal
