#include "anneal/engine/builder/inputs/value_ranges.h"

#include <algorithm>
#include <cmath>

#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

// A size that an input's value decides is hardly meant to be larger.
constexpr double kLargestDecidedSize = 1024;
constexpr int kMaxBodyDepth = 16;

}  // namespace

class ValueRanges::Walk {
 public:
  Walk(const Plan& plan, std::span<const Tensor> weights, const std::vector<Fact>& facts,
       const SymbolValues& symbols, int depth)
      : plan_(plan), weights_(weights), facts_(facts), symbols_(symbols), depth_(depth) {
    known_.resize(plan.slots.size());
    is_written_.resize(plan.slots.size());
    for (const uint32_t input : plan.inputs) is_written_[input] = true;
    for (const Step& step : plan.steps)
      for (const uint32_t output : step.outputs) {
        is_written_[output] = true;
        if (plan.slots[output].storage == Storage::kView)
          parts_[plan.slots[output].base].push_back(output);
      }
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

  std::vector<ValueRange> run(std::span<const ValueRange> inputs, RangeFindings& findings) {
    findings_ = &findings;
    values_.assign(plan_.slots.size(), std::nullopt);
    least_.assign(plan_.slots.size(), std::nullopt);
    for (size_t i = 0; i < plan_.inputs.size() && i < inputs.size(); ++i)
      values_[plan_.inputs[i]] = inputs[i];
    for (const Step& step : plan_.steps) run(step);
    std::vector<ValueRange> outputs;
    for (const uint32_t output : plan_.outputs) outputs.push_back(value(output));
    return outputs;
  }

 private:
  ValueRange value(uint32_t slot) {
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
  // A view of what a step writes, or what steps write in parts.
  std::optional<ValueRange> unwritten(uint32_t slot) {
    const uint32_t base = base_of(plan_, slot);
    if (base != slot && (is_written_[base] || !parts_.contains(base))) return value(base);
    std::optional<ValueRange> all;
    if (const auto parts = parts_.find(base); parts != parts_.end())
      for (const uint32_t part : parts->second)
        if (values_[part]) all = all ? united(*all, *values_[part]) : *values_[part];
    return all;
  }
  ValueRange input(const Step& step, size_t i) {
    return i < step.inputs.size() ? value(step.inputs[i]) : ValueRange{{0, 0}, -1};
  }
  bool has(const Step& step, size_t i) const {
    return i < step.op_input_count && step.inputs[i] != kNoSlot;
  }
  const Shape& shape(uint32_t slot) const { return facts_[slot].type.shape; }

  // The size of an axis, or the least that it can be; nullopt where nothing is known.
  std::optional<double> size_of_axis(uint32_t slot, int64_t axis) const {
    const Shape& sizes = shape(slot);
    if (axis < 0 || axis >= sizes.rank()) return std::nullopt;
    const Size size = sizes[static_cast<int>(axis)];
    if (size.known()) return static_cast<double>(size.value());
    if (least_[slot]) return (*least_[slot])[static_cast<int>(axis)];
    return std::nullopt;
  }
  std::vector<int64_t> dims_of_slot(uint32_t slot) const {
    std::vector<int64_t> dims;
    for (const Size size : shape(slot)) dims.push_back(size.known() ? size.value() : -1);
    return dims;
  }
  double elements_of_axes(uint32_t slot) const {
    double total = 1;
    for (const Size size : shape(slot))
      total *= size.known() ? static_cast<double>(size.value()) : kInfinity;
    return std::isnan(total) ? 0 : total;
  }

  void refuse_beyond(const ValueRange& value, const ValueInterval& accepted) {
    if (value.range.low < accepted.low || value.range.high > accepted.high) ++findings_->refusals;
  }

  // An index along an axis of a slot.
  void read_index(const Step& step, size_t i, uint32_t of, int64_t axis, bool is_place) {
    const auto size = size_of_axis(of, axis);
    if (size) read_index(value(step.inputs[i]), *size, is_place);
  }
  void read_index(const ValueRange& index, double size, bool is_place) {
    if (size < 1) return;
    refuse_beyond(index, {-size, size - 1});
    if (index.port < 0) return;
    note(findings_->indices, index.port, {0, size - 1});
    if (is_place) note(findings_->places, index.port, {0, size - 1});
  }
  static void note(std::map<int, ValueInterval>& uses, int port, const ValueInterval& range) {
    const auto [known, is_new] = uses.emplace(port, range);
    if (!is_new) known->second = united(known->second, range);
  }
  void read_size(const ValueRange& size, const ValueInterval& accepted) {
    refuse_beyond(size, accepted);
    if (size.port >= 0) note(findings_->sizes, size.port, accepted);
  }
  // A number of elements that values decide, as far as they do.
  void read_size_input(const Step& step, size_t i, double least) {
    if (!has(step, i) || known_[step.inputs[i]]) return;
    if (plan_.slots[step.inputs[i]].storage == Storage::kWeight) return;
    read_size(input(step, i), {least, kLargestDecidedSize});
  }

  // The last axis of the indices goes through axes of the slot; operands of a Concat apart.
  void read_tuples(const Step& step, uint32_t of, int64_t first_axis, bool is_place) {
    const uint32_t indices = step.inputs[1];
    const auto count = size_of_axis(indices, shape(indices).rank() - 1);
    if (!count) return;
    const Step* concat = nullptr;
    for (const Step& other : plan_.steps)
      if (std::holds_alternative<Concat>(other.op) && other.outputs[0] == indices &&
          other.epilogues.empty() && std::get<Concat>(other.op).axis == shape(indices).rank() - 1)
        concat = &other;
    if (concat == nullptr) {
      // All columns have one interval, so the widest axis decides.
      double widest = 0;
      for (int64_t k = 0; k < static_cast<int64_t>(*count); ++k)
        widest = std::max(widest, size_of_axis(of, first_axis + k).value_or(kInfinity));
      if (std::isfinite(widest)) read_index(value(indices), widest, is_place);
      return;
    }
    int64_t axis = first_axis;
    for (const uint32_t part : concat->inputs) {
      const auto width = size_of_axis(part, shape(part).rank() - 1);
      if (!width) return;
      if (*width == 1)
        if (const auto size = size_of_axis(of, axis)) read_index(value(part), *size, is_place);
      axis += static_cast<int64_t>(*width);
    }
  }

  void run(const Step& step) {
    std::vector<ValueRange> results;
    std::visit([&](const auto& op) { results = ranges(op, step); }, step.op);
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
    }
  }

  std::vector<ValueRange> after_epilogues(const Step& step, std::vector<ValueRange> results) {
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

  std::vector<ValueRange> op_inputs(const Step& step) {
    std::vector<ValueRange> inputs;
    for (size_t i = 0; i < step.op_input_count; ++i) inputs.push_back(input(step, i));
    return inputs;
  }

  // One overload per op: what its results may hold. The default knows nothing.
  template <class T>
  std::vector<ValueRange> ranges(const T&, const Step&) {
    return {};
  }

  std::vector<ValueRange> ranges(const Pointwise& op, const Step& step) {
    return program_ranges(op.program, op_inputs(step), dims_of_slot(step.outputs[0]),
                          findings_->uses);
  }

  // The range that map gives of x and its further inputs; x itself if it is empty.
  ValueRange mapped(const Program& map, const Step& step, size_t skipped, size_t dims_of) {
    if (map.empty()) return input(step, 0);
    std::vector<ValueRange> inputs = {input(step, 0)};
    for (size_t i = skipped; inputs.size() < map.inputs().size(); ++i)
      inputs.push_back(input(step, i));
    const auto results =
        program_ranges(map, inputs, dims_of_slot(step.inputs[dims_of]), findings_->uses);
    return results.empty() ? ValueRange() : results[0];
  }

  std::vector<ValueRange> ranges(const Attention& op, const Step& step) {
    if (!op.score.empty()) {
      std::vector<ValueRange> inputs = {ValueRange()};
      for (size_t i = 3; i < step.op_input_count; ++i) inputs.push_back(input(step, i));
      const auto axis = [&](size_t i, int k) {
        const Size size = shape(step.inputs[i])[k];
        return size.known() ? size.value() : -1;
      };
      const std::vector<int64_t> dims = {axis(0, 0), axis(0, 1), axis(0, 2), axis(1, 2)};
      program_ranges(op.score, inputs, dims, findings_->uses);
    }
    return {};
  }
  std::vector<ValueRange> ranges(const Softmax& op, const Step& step) {
    mapped(op.map, step, 1, 0);
    return {{op.log ? ValueInterval{-kInfinity, 0} : ValueInterval{0, 1}, -1}};
  }
  std::vector<ValueRange> ranges(const Reduce& op, const Step& step) {
    const ValueRange from = mapped(op.map, step, 2, 0);
    const ValueInterval& x = from.range;
    const double before = elements_of_axes(step.inputs[0]),
                 after = elements_of_axes(step.outputs[0]);
    const double count = after > 0 && std::isfinite(before / after) ? before / after : kInfinity;
    switch (op.kind) {
      case ReduceKind::kSum:
        return {{times(x, count), -1}};
      case ReduceKind::kProd:
        return {{x.low >= 0 && x.high <= 1 ? ValueInterval{0, 1} : ValueInterval(), -1}};
      default:
        return {{x, -1}};
    }
  }
  static ValueInterval times(const ValueInterval& x, double count) {
    const auto product = [&](double end) { return end == 0 ? 0 : end * count; };
    return {std::min(x.low, product(x.low)), std::max(x.high, product(x.high))};
  }
  std::vector<ValueRange> ranges(const Cumulative& op, const Step& step) {
    const ValueInterval x = input(step, 0).range;
    if (op.kind != CumulativeKind::kSum)
      return {{x.low >= 0 && x.high <= 1 ? ValueInterval{0, 1} : ValueInterval(), -1}};
    // Along the axis, or along the longest where only a run tells it.
    double longest = 0;
    const ValueInterval axis = input(step, 1).range;
    const int rank = shape(step.inputs[0]).rank();
    for (int i = 0; i < rank; ++i)
      if (axis.has(i) || axis.has(i - rank))
        longest = std::max(longest, size_of_axis(step.inputs[0], i).value_or(kInfinity));
    ValueInterval sum = times(x, longest);
    if (op.exclusive) sum = united(sum, {0, 0});
    return {{sum, -1}};
  }

  std::vector<ValueRange> ranges(const ArgReduce& op, const Step& step) {
    return {{index_range(step.inputs[0], op.axis), -1}};
  }
  ValueInterval index_range(uint32_t slot, int64_t axis) const {
    const Size size = axis < shape(slot).rank() ? shape(slot)[static_cast<int>(axis)] : Size(0);
    return {0, size.known() ? std::max(0.0, static_cast<double>(size.value()) - 1) : kInfinity};
  }
  std::vector<ValueRange> ranges(const TopK& op, const Step& step) {
    if (const auto size = size_of_axis(step.inputs[0], op.axis); size && !known_[step.inputs[1]])
      read_size(input(step, 1), {1, std::min(*size, kLargestDecidedSize)});
    const bool is_values = op.of == TopKOf::kValues;
    return {is_values ? ValueRange{input(step, 0).range, -1} : ValueRange{},
            {index_range(step.inputs[0], op.axis), -1}};
  }
  std::vector<ValueRange> ranges(const NonZero&, const Step& step) {
    double longest = 1;
    for (int axis = 0; axis < shape(step.inputs[0]).rank(); ++axis)
      longest = std::max(longest, index_range(step.inputs[0], axis).high + 1);
    return {{{0, longest - 1}, -1}};
  }
  std::vector<ValueRange> ranges(const Unique& op, const Step& step) {
    const double count = op.flatten ? elements_of_axes(step.inputs[0])
                                    : size_of_axis(step.inputs[0], op.axis).value_or(kInfinity);
    const ValueRange index{{0, std::max(0.0, count - 1)}, -1};
    return {input(step, 0), index, index, {{0, std::max(0.0, count)}, -1}};
  }
  std::vector<ValueRange> ranges(const NonMaxSuppression&, const Step& step) {
    double longest = 1;
    for (size_t i = 0; i < 2; ++i)
      for (int axis = 0; axis < shape(step.inputs[i]).rank(); ++axis)
        longest = std::max(longest, index_range(step.inputs[i], axis).high + 1);
    return {{{0, longest - 1}, -1}};
  }

  // What moves elements, or takes some of them.
  std::vector<ValueRange> first_input(const Step& step) { return {input(step, 0)}; }
  std::vector<ValueRange> ranges(const Reshape&, const Step& step) {
    read_size_input(step, 1, -1);
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Transpose&, const Step& step) { return first_input(step); }
  std::vector<ValueRange> ranges(const Slice&, const Step& step) {
    keep_least_dims(step);
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Expand&, const Step& step) {
    read_size_input(step, 1, 1);
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Tile&, const Step& step) {
    read_size_input(step, 1, 1);
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Require&, const Step& step) {
    refuse_beyond(input(step, 0), {1, 1});
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Concat& op, const Step& step) {
    ValueRange all = input(step, 0);
    for (size_t i = 1; i < step.op_input_count; ++i) all = united(all, input(step, i));
    least_of_concat(op, step);
    return {all};
  }
  std::vector<ValueRange> ranges(const Pad& op, const Step& step) {
    // Pads that are not negative leave the sizes that are there.
    if (input(step, 1).range.low >= 0) keep_least_dims(step);
    read_pads(step);
    ValueRange x = input(step, 0);
    if (op.mode == PadMode::kConstant) x = united(x, input(step, 2));
    return {x};
  }
  std::vector<ValueRange> ranges(const ReverseSequence& op, const Step& step) {
    if (const auto size = size_of_axis(step.inputs[0], op.time_axis))
      read_length(input(step, 1), {1, *size});
    return first_input(step);
  }
  std::vector<ValueRange> ranges(const Recurrent&, const Step& step) {
    const auto size = size_of_axis(step.inputs[0], 0);
    if (size && has(step, 4)) read_length(input(step, 4), {1, *size});
    return {};
  }
  void read_length(const ValueRange& length, const ValueInterval& accepted) {
    refuse_beyond(length, {0, accepted.high});
    if (length.port >= 0) note(findings_->indices, length.port, accepted);
  }
  std::vector<ValueRange> ranges(const Resize& op, const Step& step) {
    read_size_input(step, 1, 1);
    ValueRange x = input(step, 0);
    if (op.mode == ResizeMode::kCubic) x = {};
    return {x};
  }
  std::vector<ValueRange> ranges(const Pool& op, const Step& step) {
    ValueRange x = input(step, 0);
    x.port = -1;
    if (op.kind != PoolKind::kMax) x.range = united(x.range, {0, 0});
    if (op.kind == PoolKind::kLp) x = {};
    return {x, {{0, kInfinity}, -1}};
  }

  std::vector<ValueRange> ranges(const Gather& op, const Step& step) {
    read_index(step, 1, step.inputs[0], op.axis, false);
    return {gathered(step)};
  }
  std::vector<ValueRange> ranges(const GatherElements& op, const Step& step) {
    read_index(step, 1, step.inputs[0], op.axis, false);
    return {gathered(step)};
  }
  std::vector<ValueRange> ranges(const GatherND& op, const Step& step) {
    read_tuples(step, step.inputs[0], op.batch_dims, false);
    return {gathered(step)};
  }
  // An element of a small known tensor, as a size of ShapeOf, is known itself.
  ValueRange gathered(const Step& step) {
    const uint32_t from = step.inputs[0];
    if (is_float(plan_.slots[from].type.dtype) &&
        elements_of_axes(from) > static_cast<double>(kMostWeightElements))
      return {};
    return value(from);
  }
  std::vector<ValueRange> ranges(const ScatterElements& op, const Step& step) {
    read_index(step, 1, step.inputs[0], op.axis, true);
    keep_least_dims(step);
    return {scattered(op.reduction, step)};
  }
  std::vector<ValueRange> ranges(const ScatterND& op, const Step& step) {
    read_tuples(step, step.inputs[0], 0, true);
    keep_least_dims(step);
    return {scattered(op.reduction, step)};
  }
  ValueRange scattered(ScatterReduction reduction, const Step& step) {
    const ValueRange both = united(input(step, 0), input(step, 2));
    if (reduction == ScatterReduction::kAdd) {
      const ValueInterval added = times(input(step, 2).range, elements_of_axes(step.inputs[2]));
      const ValueInterval x = input(step, 0).range;
      return {{x.low + std::min(0.0, added.low), x.high + std::max(0.0, added.high)}, -1};
    }
    return reduction == ScatterReduction::kMul ? ValueRange() : both;
  }
  std::vector<ValueRange> ranges(const RoiAlign&, const Step& step) {
    read_index(step, 2, step.inputs[0], 0, false);
    return {{input(step, 0).range, -1}};
  }
  std::vector<ValueRange> ranges(const Range&, const Step& step) {
    const ValueInterval start = input(step, 0).range, limit = input(step, 1).range,
                        delta = input(step, 2).range;
    const bool decides = std::ranges::any_of(
        step.inputs, [&](uint32_t slot) { return slot != kNoSlot && !known_[slot]; });
    if (decides && delta.is_point() && delta.low != 0) {
      const double least = (limit.low - start.high) / delta.low,
                   most = (limit.high - start.low) / delta.low;
      const ValueRange count{{std::min(least, most), std::max(least, most)}, -1};
      refuse_beyond(count, {1, kLargestDecidedSize});
      for (size_t i = 0; i < 2; ++i)
        if (const ValueRange end = input(step, i); end.port >= 0)
          note(findings_->sizes, end.port, {0, kLargestDecidedSize});
    }
    const double less = is_float(plan_.slots[step.outputs[0]].type.dtype) ? 0 : 1;
    if (delta.low > 0) return {{{start.low, std::max(start.low, limit.high - less)}, -1}};
    if (delta.high < 0) return {{{std::min(start.high, limit.low + less), start.high}, -1}};
    return {};
  }

  void read_pads(const Step& step) {
    if (known_[step.inputs[1]] || plan_.slots[step.inputs[1]].storage == Storage::kWeight) return;
    read_size(input(step, 1), {0, kLargestDecidedSize});
  }
  void keep_least_dims(const Step& step) {
    const uint32_t from = step.inputs[0], to = step.outputs[0];
    if (std::holds_alternative<Slice>(step.op)) return;
    if (known(shape(to)) || shape(from).rank() != shape(to).rank()) return;
    std::vector<double> least;
    for (int axis = 0; axis < shape(from).rank(); ++axis)
      least.push_back(size_of_axis(from, axis).value_or(0));
    least_[to] = std::move(least);
  }
  void least_of_concat(const Concat& op, const Step& step) {
    const uint32_t to = step.outputs[0];
    if (known(shape(to))) return;
    std::vector<double> least(shape(to).size());
    for (int axis = 0; axis < shape(to).rank(); ++axis)
      for (size_t i = 0; i < step.op_input_count; ++i) {
        const double size = size_of_axis(step.inputs[i], axis).value_or(0);
        least[axis] = axis == op.axis ? least[axis] + size : std::max(least[axis], size);
      }
    least_[to] = std::move(least);
  }

  std::vector<ValueRange> ranges(const ShapeOf&, const Step&) {
    return {{{0, ValueInterval::of(DataType::kI32).high}, -1}};
  }

  std::vector<ValueRange> run_body(int64_t index, const Step& step,
                                   const std::vector<std::pair<ValueRange, Fact>>& inputs) {
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
      walk = std::make_unique<Walk>(body, weights_, facts, symbols_, depth_ + 1);
    }
    return walk->run(values, *findings_);
  }
  std::pair<ValueRange, Fact> outer(const Step& step, size_t i) {
    const uint32_t slot = step.inputs[i];
    if (slot == kNoSlot) return {{}, Fact{}};
    return {value(slot), facts_[slot]};
  }
  // What an iteration changes is known by its type alone.
  std::pair<ValueRange, Fact> changed(const Plan& body, size_t i) {
    Fact fact;
    fact.type = body.slots[body.inputs[i]].type;
    for (Size& size : fact.type.shape)
      if (!size.known()) size = Size::unknown();
    return {{ValueInterval::of(fact.type.dtype), -1}, fact};
  }

  std::vector<ValueRange> ranges(const If& op, const Step& step) {
    std::vector<std::pair<ValueRange, Fact>> captures;
    for (size_t i = 1; i < step.op_input_count; ++i) captures.push_back(outer(step, i));
    const ValueInterval condition = input(step, 0).range;
    std::vector<ValueRange> results;
    if (condition.high >= 1) results = run_body(op.then_body, step, captures);
    if (condition.low < 1) {
      const auto others = run_body(op.else_body, step, captures);
      if (condition.high < 1) return others;
      for (size_t k = 0; k < results.size() && k < others.size(); ++k)
        results[k] = united(results[k], others[k]);
    }
    return results;
  }
  std::vector<ValueRange> ranges(const Loop& op, const Step& step) {
    if (op.body < 0 || op.body >= static_cast<int64_t>(plan_.bodies.size())) return {};
    const Plan& body = plan_.bodies[static_cast<size_t>(op.body)];
    ValueInterval trips{1, kInfinity};
    if (has(step, 0)) {
      if (!known_[step.inputs[0]]) read_size(input(step, 0), {1, kLargestDecidedSize});
      trips = input(step, 0).range;
    }
    std::vector<std::pair<ValueRange, Fact>> inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (i < 2 + static_cast<size_t>(op.carried)) {
        inputs.push_back(changed(body, i));
        if (i == 0) inputs.back().first.range = {0, std::max(0.0, trips.high - 1)};
        if (i == 1) inputs.back().first.range = {0, 1};
      } else {
        inputs.push_back(outer(step, i));
      }
    }
    // A condition, what is carried, elements: what no iteration changed is that from before.
    std::vector<ValueRange> results = run_body(op.body, step, inputs);
    if (!results.empty()) results.erase(results.begin());
    for (size_t k = 0; k < results.size() && k < static_cast<size_t>(op.carried); ++k)
      results[k] = united(results[k], input(step, 2 + k));
    return results;
  }
  std::vector<ValueRange> ranges(const Scan& op, const Step& step) {
    if (op.body < 0 || op.body >= static_cast<int64_t>(plan_.bodies.size())) return {};
    const Plan& body = plan_.bodies[static_cast<size_t>(op.body)];
    const auto carried = static_cast<size_t>(op.carried);
    std::vector<std::pair<ValueRange, Fact>> inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      if (i < carried + op.axes.size()) {
        inputs.push_back(changed(body, i));
        if (i >= carried) inputs.back().first = input(step, i);
      } else {
        inputs.push_back(outer(step, i));
      }
    }
    std::vector<ValueRange> results = run_body(op.body, step, inputs);
    for (size_t k = 0; k < results.size() && k < carried; ++k)
      results[k] = united(results[k], input(step, k));
    return results;
  }

  const Plan& plan_;
  std::span<const Tensor> weights_;
  const std::vector<Fact>& facts_;
  const SymbolValues& symbols_;
  int depth_;
  std::vector<std::optional<ValueInterval>> known_;        // by slot: contents that never change
  std::vector<bool> is_written_;                           // by slot
  std::map<uint32_t, std::vector<uint32_t>> parts_;        // by slot: views that steps write
  std::vector<std::optional<ValueRange>> values_;          // by slot, of this run
  std::vector<std::optional<std::vector<double>>> least_;  // by slot: the least dims, where unknown
  std::map<std::pair<const Step*, int64_t>, std::pair<std::vector<Fact>, std::unique_ptr<Walk>>>
      bodies_;
  RangeFindings* findings_ = nullptr;
};

ValueRanges::ValueRanges(const Plan& plan, std::span<const Tensor> weights, const SizedPlan& sized,
                         const SymbolValues& symbols)
    : walk_(std::make_unique<Walk>(plan, weights, sized.facts, symbols, 0)) {}

ValueRanges::~ValueRanges() = default;

RangeFindings ValueRanges::find(std::span<const ValueInterval> inputs) {
  std::vector<ValueRange> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back({inputs[i], static_cast<int>(i)});
  RangeFindings findings;
  walk_->run(values, findings);
  return findings;
}

}  // namespace anneal
