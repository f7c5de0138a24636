#include "anneal/engine/builder/inputs/value_walk.h"

#include <algorithm>
#include <cmath>

#include "anneal/engine/builder/inputs/range_rules.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

constexpr int kMaxBodyDepth = 16;

// Sizes, or strides of axes, that matter: those of axes with one element do not.
std::vector<Size> of_long_axes(const Shape& sizes, const Shape& shape) {
  std::vector<Size> result;
  for (int axis = 0; axis < std::min(sizes.rank(), shape.rank()); ++axis)
    if (shape[axis] != Size(1)) result.push_back(sizes[axis]);
  return result;
}

}  // namespace

ValueWalk::ValueWalk(const Plan& plan, std::span<const Tensor> weights,
                     const std::vector<Fact>& facts, const SymbolValues& symbols, int depth)
    : plan_(plan), weights_(weights), facts_(facts), symbols_(symbols), depth_(depth) {
  known_.resize(plan.slots.size());
  is_written_.resize(plan.slots.size());
  for (const uint32_t input : plan.inputs) is_written_[input] = true;
  for (const Step& step : plan.steps)
    for (const uint32_t output : step.outputs) is_written_[output] = true;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const auto& elements = facts[i].elements;
    if (!elements || !std::ranges::all_of(*elements, [](Size size) { return size.known(); }))
      continue;
    ValueInterval all{kInfinity, -kInfinity};
    for (const Size size : *elements) {
      const auto value = static_cast<double>(size.value());
      all = united(all, {value, value});
    }
    known_[i] = all.low > all.high ? ValueInterval{0, 0} : all;
  }
}

std::vector<ValueRange> ValueWalk::run(std::span<const ValueRange> inputs,
                                       RangeFindings& findings) {
  findings_ = &findings;
  values_.assign(plan_.slots.size(), std::nullopt);
  least_.assign(plan_.slots.size(), std::nullopt);
  writers_.clear();
  for (size_t i = 0; i < plan_.inputs.size() && i < inputs.size(); ++i)
    values_[plan_.inputs[i]] = inputs[i];
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    if (is_outermost()) findings.step = i;
    run(plan_.steps[i]);
  }
  std::vector<ValueRange> outputs;
  for (const uint32_t output : plan_.outputs) outputs.push_back(value(output));
  return outputs;
}

ValueRange ValueWalk::value(uint32_t slot) {
  if (slot == kNoSlot) return {{0, 0}, -1};
  if (values_[slot]) return *values_[slot];
  const Slot& it = plan_.slots[slot];
  if (!is_written_[slot] && !known_[slot])
    if (const auto viewed = unwritten(slot)) return *viewed;
  ValueRange result{ValueInterval::of(it.type.dtype), -1};
  if (known_[slot]) {
    result.range = *known_[slot];
  } else if (it.storage == Storage::kWeight) {
    result.range = interval_of(weights_[it.offset]);
    known_[slot] = result.range;
  }
  values_[slot] = result;
  return result;
}

// The range of a view that no step writes: that of the last write into its memory, perhaps in
// parts.
std::optional<ValueRange> ValueWalk::unwritten(uint32_t slot) {
  const uint32_t base = base_of(plan_, slot);
  const auto written = writers_.find(base);
  if (written == writers_.end()) return base == slot ? std::nullopt : std::optional(value(base));
  std::optional<ValueRange> all;
  for (auto writer = written->second.rbegin(); writer != written->second.rend(); ++writer) {
    const ValueRange& range = *values_[*writer];
    all = all ? united(*all, range) : range;
    if (overwrites(*writer, slot)) break;
  }
  return all;
}

// Whether no element of the slot was written before the writer.
bool ValueWalk::overwrites(uint32_t writer, uint32_t slot) const {
  const Slot &a = plan_.slots[writer], &b = plan_.slots[slot];
  if (covers_base(plan_, a)) return true;
  return a.base_offset == b.base_offset &&
         of_long_axes(a.type.shape, a.type.shape) == of_long_axes(b.type.shape, b.type.shape) &&
         of_long_axes(a.strides, a.type.shape) == of_long_axes(b.strides, b.type.shape);
}

std::optional<int64_t> ValueWalk::number_of(Size size) const {
  if (size.known()) return size.value();
  if (size.is_unknown()) return std::nullopt;
  for (const uint32_t symbol : plan_.sizes->symbols_in(size))
    if (symbol >= symbols_.size() || !symbols_[symbol]) return std::nullopt;
  return plan_.sizes->evaluate(size, symbols_);
}

std::optional<double> ValueWalk::size_of_axis(uint32_t slot, int64_t axis) const {
  const Shape& sizes = shape(slot);
  if (axis < 0 || axis >= sizes.rank()) return std::nullopt;
  const Size size = sizes[static_cast<int>(axis)];
  if (size.known()) return static_cast<double>(size.value());
  if (least_[slot]) return (*least_[slot])[static_cast<size_t>(axis)];
  return std::nullopt;
}

std::vector<int64_t> ValueWalk::dims_of_slot(uint32_t slot) const {
  std::vector<int64_t> dims;
  for (const Size size : shape(slot)) dims.push_back(size.known() ? size.value() : -1);
  return dims;
}

double ValueWalk::elements_of_axes(uint32_t slot) const {
  double total = 1;
  for (const Size size : shape(slot))
    total *= size.known() ? static_cast<double>(size.value()) : kInfinity;
  return std::isnan(total) ? 0 : total;
}

std::map<int64_t, uint32_t> ValueWalk::columns_of(uint32_t slot) const {
  std::map<int64_t, uint32_t> columns;
  const int last = shape(slot).rank() - 1;
  const auto count = size_of_axis(slot, last);
  if (!count) return columns;
  for (const Step& step : plan_.steps) {
    const auto* concat = std::get_if<Concat>(&step.op);
    if (concat == nullptr || step.outputs[0] != slot || !step.epilogues.empty() ||
        concat->axis != last)
      continue;
    int64_t column = 0;
    for (const uint32_t part : step.inputs) {
      const auto width = size_of_axis(part, shape(part).rank() - 1);
      if (!width) return columns;
      if (*width == 1) columns[column] = part;
      column += static_cast<int64_t>(*width);
    }
    return columns;
  }
  // Steps may have written the operands of a Concat into its result.
  const uint32_t base = base_of(plan_, slot);
  const auto written = writers_.find(base);
  if (written == writers_.end() || !covers_base(plan_, plan_.slots[slot])) return columns;
  const auto width = static_cast<int64_t>(*count);
  for (const uint32_t part : written->second) {
    const Slot& view = plan_.slots[part];
    const auto offset = part == base ? std::nullopt : number_of(view.base_offset);
    const auto steps = of_long_axes(view.strides, view.type.shape);
    const bool is_column = offset && *offset < width && std::ranges::all_of(steps, [&](Size step) {
                             const auto number = number_of(step);
                             return number && *number % width == 0;
                           });
    if (!is_column) return {};
    columns[*offset] = part;
  }
  return columns;
}

void ValueWalk::run(const Step& step) {
  RangeRules rules(*this, step);
  std::vector<ValueRange> results = std::visit(rules, step.op);
  results.resize(std::max(results.size(), step.outputs.size()));
  if (!step.epilogues.empty()) results = after_epilogues(step, std::move(results));
  for (size_t k = 0; k < step.outputs.size(); ++k) {
    const uint32_t output = step.outputs[k];
    ValueRange result = k < results.size() ? results[k] : ValueRange{};
    const ValueInterval all = ValueInterval::of(plan_.slots[output].type.dtype);
    result.range = {std::clamp(result.range.low, all.low, all.high),
                    std::clamp(result.range.high, all.low, all.high)};
    if (known_[output]) result = {*known_[output], -1};
    values_[output] = result;
    writers_[base_of(plan_, output)].push_back(output);
  }
}

std::vector<ValueRange> ValueWalk::after_epilogues(const Step& step,
                                                   std::vector<ValueRange> results) {
  std::vector<ValueRange> made;
  size_t next = step.op_input_count;
  for (size_t k = 0; k < step.epilogues.size(); ++k) {
    const Program& program = step.epilogues[k];
    const ValueRange from = k < results.size() ? results[k] : ValueRange{};
    if (program.empty()) {
      made.push_back(from);
      continue;
    }
    std::vector<ValueRange> inputs = {from};
    for (size_t i = 1; i < program.inputs().size(); ++i) inputs.push_back(input(step, next++));
    const size_t first = made.size();
    const auto dims =
        first < step.outputs.size() ? dims_of_slot(step.outputs[first]) : std::vector<int64_t>();
    for (const ValueRange& one : program_ranges(program, inputs, dims, findings_->uses))
      made.push_back(one);
  }
  return made;
}

std::vector<ValueRange> ValueWalk::run_body(
    int64_t index, const Step& step, const std::vector<std::pair<ValueRange, Fact>>& inputs) {
  if (depth_ >= kMaxBodyDepth || index < 0 || index >= static_cast<int64_t>(plan_.bodies.size()))
    return {};
  const Plan& body = plan_.bodies[static_cast<size_t>(index)];
  auto& [facts, walk] = bodies_[{&step, index}];
  std::vector<ValueRange> values;
  std::vector<Fact> types;
  for (const auto& [value, fact] : inputs) {
    values.push_back(value);
    types.push_back(fact);
  }
  if (!walk) {
    facts = sized_body(body, weights_, symbols_, types);
    walk = std::make_unique<ValueWalk>(body, weights_, facts, symbols_, depth_ + 1);
  }
  return walk->run(values, *findings_);
}

}  // namespace anneal
