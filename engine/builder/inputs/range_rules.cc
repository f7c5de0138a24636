#include "anneal/engine/builder/inputs/range_rules.h"
#include "anneal/core/dtype_kinds.h"

#include <algorithm>
#include <cmath>

namespace anneal {
namespace {

ValueInterval times(const ValueInterval& x, double count) {
  const auto product = [&](double end) { return end == 0 ? 0 : end * count; };
  return {std::min(x.low, product(x.low)), std::max(x.high, product(x.high))};
}

// Of the indices along an axis.
ValueInterval index_range(const ValueWalk& walk, uint32_t slot, int64_t axis) {
  const Shape& shape = walk.shape(slot);
  const Size size = axis < shape.rank() ? shape[static_cast<int>(axis)] : Size(0);
  return {0, size.known() ? std::max(0.0, static_cast<double>(size.value()) - 1) : kInfinity};
}

}  // namespace

RangeRules::Ranges RangeRules::op_inputs() {
  Ranges inputs;
  for (size_t i = 0; i < step_.op_input_count; ++i) inputs.push_back(input(i));
  return inputs;
}

RangeRules::Ranges RangeRules::operator()(const Pointwise& op) {
  return program_ranges(op.program, op_inputs(), walk_.dims_of_slot(step_.outputs[0]),
                        walk_.findings().uses);
}

// The range that map gives of x and its further inputs; x itself if it is empty.
ValueRange RangeRules::mapped(const Program& map, size_t skipped, size_t dims_of) {
  if (map.empty()) return input(0);
  Ranges inputs = {input(0)};
  for (size_t i = skipped; inputs.size() < map.inputs().size(); ++i) inputs.push_back(input(i));
  const auto results =
      program_ranges(map, inputs, walk_.dims_of_slot(step_.inputs[dims_of]), walk_.findings().uses);
  return results.empty() ? ValueRange() : results[0];
}

RangeRules::Ranges RangeRules::operator()(const Attention& op) {
  if (!op.score.empty()) {
    Ranges inputs = {ValueRange()};
    for (size_t i = 3; i < step_.op_input_count; ++i) inputs.push_back(input(i));
    const auto axis = [&](size_t i, int k) {
      const Size size = walk_.shape(step_.inputs[i])[k];
      return size.known() ? size.value() : -1;
    };
    const std::vector<int64_t> dims = {axis(0, 0), axis(0, 1), axis(0, 2), axis(1, 2)};
    program_ranges(op.score, inputs, dims, walk_.findings().uses);
  }
  return {};
}
RangeRules::Ranges RangeRules::operator()(const Softmax& op) {
  mapped(op.map, 1, 0);
  return {{op.log ? ValueInterval{-kInfinity, 0} : ValueInterval{0, 1}, -1}};
}
RangeRules::Ranges RangeRules::operator()(const Reduce& op) {
  if (has(1)) readers_.read_axes(input(1), walk_.shape(step_.inputs[0]).rank());
  const ValueRange from = mapped(op.map, 2, 0);
  const ValueInterval& x = from.range;
  const double before = walk_.elements_of_axes(step_.inputs[0]),
               after = walk_.elements_of_axes(step_.outputs[0]);
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
RangeRules::Ranges RangeRules::operator()(const Cumulative& op) {
  readers_.read_axes(input(1), walk_.shape(step_.inputs[0]).rank());
  const ValueInterval x = input(0).range;
  if (op.kind != CumulativeKind::kSum)
    return {{x.low >= 0 && x.high <= 1 ? ValueInterval{0, 1} : ValueInterval(), -1}};
  // Along the axis, or along the longest axis if it is known only at run time.
  double longest = 0;
  const ValueInterval axis = input(1).range;
  const int rank = walk_.shape(step_.inputs[0]).rank();
  for (int i = 0; i < rank; ++i)
    if (axis.has(i) || axis.has(i - rank))
      longest = std::max(longest, walk_.size_of_axis(step_.inputs[0], i).value_or(kInfinity));
  ValueInterval sum = times(x, longest);
  if (op.exclusive) sum = united(sum, {0, 0});
  return {{sum, -1}};
}

RangeRules::Ranges RangeRules::operator()(const ArgReduce& op) {
  return {{index_range(walk_, step_.inputs[0], op.axis), -1}};
}
RangeRules::Ranges RangeRules::operator()(const TopK& op) {
  if (const auto size = walk_.size_of_axis(step_.inputs[0], op.axis);
      size && !walk_.is_known(step_.inputs[1]))
    readers_.read_size(input(1), {1, std::min(*size, kLargestDecidedSize)});
  const bool is_values = op.of == TopKOf::kValues;
  return {is_values ? ValueRange{input(0).range, -1} : ValueRange{},
          {index_range(walk_, step_.inputs[0], op.axis), -1}};
}
RangeRules::Ranges RangeRules::operator()(const NonZero&) {
  double longest = 1;
  for (int axis = 0; axis < walk_.shape(step_.inputs[0]).rank(); ++axis)
    longest = std::max(longest, index_range(walk_, step_.inputs[0], axis).high + 1);
  return {{{0, longest - 1}, -1}};
}
RangeRules::Ranges RangeRules::operator()(const Unique& op) {
  const double count = op.flatten
                           ? walk_.elements_of_axes(step_.inputs[0])
                           : walk_.size_of_axis(step_.inputs[0], op.axis).value_or(kInfinity);
  const ValueRange index{{0, std::max(0.0, count - 1)}, -1};
  return {input(0), index, index, {{0, std::max(0.0, count)}, -1}};
}
RangeRules::Ranges RangeRules::operator()(const NonMaxSuppression&) {
  double longest = 1;
  for (size_t i = 0; i < 2; ++i)
    for (int axis = 0; axis < walk_.shape(step_.inputs[i]).rank(); ++axis)
      longest = std::max(longest, index_range(walk_, step_.inputs[i], axis).high + 1);
  return {{{0, longest - 1}, -1}};
}

// For ops that move elements, or take some elements.
RangeRules::Ranges RangeRules::first_input() { return {input(0)}; }
RangeRules::Ranges RangeRules::operator()(const Reshape&) {
  readers_.read_size_input(step_, 1, -1);
  return first_input();
}
RangeRules::Ranges RangeRules::operator()(const Transpose&) { return first_input(); }
RangeRules::Ranges RangeRules::operator()(const Slice&) { return first_input(); }
RangeRules::Ranges RangeRules::operator()(const Expand&) {
  readers_.read_size_input(step_, 1, 1);
  return first_input();
}
RangeRules::Ranges RangeRules::operator()(const Tile&) {
  readers_.read_size_input(step_, 1, 1);
  return first_input();
}
RangeRules::Ranges RangeRules::operator()(const Require&) {
  readers_.refuse_beyond(input(0), {1, 1});
  return first_input();
}
RangeRules::Ranges RangeRules::operator()(const Concat& op) {
  ValueRange all = input(0);
  for (size_t i = 1; i < step_.op_input_count; ++i) all = united(all, input(i));
  least_of_concat(op.axis);
  return {all};
}
RangeRules::Ranges RangeRules::operator()(const Pad& op) {
  // Pads that are not negative leave the sizes that are there.
  if (input(1).range.low >= 0) keep_least_dims();
  if (walk_.is_decided_late(step_.inputs[1]))
    readers_.read_size(input(1), {0, kLargestDecidedSize});
  ValueRange x = input(0);
  if (op.mode == PadMode::kConstant) x = united(x, input(2));
  return {x};
}
RangeRules::Ranges RangeRules::operator()(const ReverseSequence& op) {
  readers_.read_length(input(1), step_.inputs[0], op.time_axis);
  return first_input();
}
RangeRules::Ranges RangeRules::operator()(const Recurrent&) {
  if (has(4)) readers_.read_length(input(4), step_.inputs[0], 0);
  return {};
}
RangeRules::Ranges RangeRules::operator()(const Resize& op) {
  readers_.read_size_input(step_, 1, 1);
  ValueRange x = input(0);
  if (op.mode == ResizeMode::kCubic) x = {};
  return {x};
}
RangeRules::Ranges RangeRules::operator()(const Pool& op) {
  ValueRange x = input(0);
  x.port = -1;
  if (op.kind != PoolKind::kMax) x.range = united(x.range, {0, 0});
  if (op.kind == PoolKind::kLp) x = {};
  return {x, {{0, kInfinity}, -1}};
}

RangeRules::Ranges RangeRules::operator()(const Gather& op) {
  readers_.read_index(step_, 1, step_.inputs[0], op.axis, false);
  return {gathered()};
}
RangeRules::Ranges RangeRules::operator()(const GatherElements& op) {
  readers_.read_index(step_, 1, step_.inputs[0], op.axis, false);
  return {gathered()};
}
RangeRules::Ranges RangeRules::operator()(const GatherND& op) {
  readers_.read_tuples(step_, step_.inputs[0], op.batch_dims, false);
  return {gathered()};
}
// An element of a small known tensor, as a size of ShapeOf, is known itself.
ValueRange RangeRules::gathered() {
  const uint32_t from = step_.inputs[0];
  if (is_float(walk_.plan().slots[from].type.dtype) &&
      walk_.elements_of_axes(from) > static_cast<double>(kMostWeightElements))
    return {};
  return walk_.value(from);
}
RangeRules::Ranges RangeRules::operator()(const ScatterElements& op) {
  readers_.read_index(step_, 1, step_.inputs[0], op.axis, true);
  keep_least_dims();
  return {scattered(op.reduction)};
}
RangeRules::Ranges RangeRules::operator()(const ScatterND& op) {
  readers_.read_tuples(step_, step_.inputs[0], 0, true);
  keep_least_dims();
  return {scattered(op.reduction)};
}
ValueRange RangeRules::scattered(ScatterReduction reduction) {
  const ValueRange both = united(input(0), input(2));
  if (reduction == ScatterReduction::kAdd) {
    const ValueInterval added = times(input(2).range, walk_.elements_of_axes(step_.inputs[2]));
    const ValueInterval x = input(0).range;
    return {{x.low + std::min(0.0, added.low), x.high + std::max(0.0, added.high)}, -1};
  }
  return reduction == ScatterReduction::kMul ? ValueRange() : both;
}
RangeRules::Ranges RangeRules::operator()(const RoiAlign&) {
  readers_.read_index(step_, 2, step_.inputs[0], 0, false);
  return {{input(0).range, -1}};
}
RangeRules::Ranges RangeRules::operator()(const Range&) {
  const ValueInterval start = input(0).range, limit = input(1).range, delta = input(2).range;
  const bool decides = std::ranges::any_of(
      step_.inputs, [&](uint32_t slot) { return slot != kNoSlot && !walk_.is_known(slot); });
  if (decides && delta.is_point() && delta.low != 0) {
    const double least = (limit.low - start.high) / delta.low,
                 most = (limit.high - start.low) / delta.low;
    const ValueRange count{{std::min(least, most), std::max(least, most)}, -1};
    readers_.refuse_beyond(count, {1, kLargestDecidedSize});
    for (size_t i = 0; i < 2; ++i) readers_.read_end(input(i));
  }
  const double less = is_float(walk_.plan().slots[step_.outputs[0]].type.dtype) ? 0 : 1;
  if (delta.low > 0) return {{{start.low, std::max(start.low, limit.high - less)}, -1}};
  if (delta.high < 0) return {{{std::min(start.high, limit.low + less), start.high}, -1}};
  return {};
}

void RangeRules::keep_least_dims() {
  const uint32_t from = step_.inputs[0], to = step_.outputs[0];
  if (known(walk_.shape(to)) || walk_.shape(from).rank() != walk_.shape(to).rank()) return;
  std::vector<double> least;
  for (int axis = 0; axis < walk_.shape(from).rank(); ++axis)
    least.push_back(walk_.size_of_axis(from, axis).value_or(0));
  walk_.set_least_dims(to, std::move(least));
}
void RangeRules::least_of_concat(int64_t axis) {
  const uint32_t to = step_.outputs[0];
  if (known(walk_.shape(to))) return;
  std::vector<double> least(walk_.shape(to).size());
  for (int i = 0; i < walk_.shape(to).rank(); ++i)
    for (size_t k = 0; k < step_.op_input_count; ++k) {
      const double size = walk_.size_of_axis(step_.inputs[k], i).value_or(0);
      double& all = least[static_cast<size_t>(i)];
      all = i == axis ? all + size : std::max(all, size);
    }
  walk_.set_least_dims(to, std::move(least));
}

RangeRules::Ranges RangeRules::operator()(const ShapeOf&) {
  return {{{0, ValueInterval::of(DataType::kI32).high}, -1}};
}

RangeRules::Operand RangeRules::outer(size_t i) {
  const uint32_t slot = step_.inputs[i];
  if (slot == kNoSlot) return {{}, Fact{}};
  return {walk_.value(slot), walk_.fact(slot)};
}
// A value that iterations change is known by its type only.
RangeRules::Operand RangeRules::changed(const Plan& body, size_t i) {
  Fact fact;
  fact.type = body.slots[body.inputs[i]].type;
  for (Size& size : fact.type.shape)
    if (!size.known()) size = Size::unknown();
  return {{ValueInterval::of(fact.type.dtype), -1}, fact};
}

RangeRules::Ranges RangeRules::operator()(const If& op) {
  std::vector<Operand> captures;
  for (size_t i = 1; i < step_.op_input_count; ++i) captures.push_back(outer(i));
  const ValueInterval condition = input(0).range;
  Ranges results;
  if (condition.high >= 1) results = walk_.run_body(op.then_body, step_, captures);
  if (condition.low < 1) {
    const auto others = walk_.run_body(op.else_body, step_, captures);
    if (condition.high < 1) return others;
    for (size_t k = 0; k < results.size() && k < others.size(); ++k)
      results[k] = united(results[k], others[k]);
  }
  return results;
}
RangeRules::Ranges RangeRules::operator()(const Loop& op) {
  if (op.body < 0 || op.body >= static_cast<int64_t>(walk_.plan().bodies.size())) return {};
  const Plan& body = walk_.plan().bodies[static_cast<size_t>(op.body)];
  ValueInterval trips{1, kInfinity};
  if (has(0)) {
    if (walk_.is_decided_late(step_.inputs[0]))
      readers_.read_size(input(0), {1, kLargestDecidedSize});
    trips = input(0).range;
  }
  std::vector<Operand> inputs;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (i < 2 + static_cast<size_t>(op.carried)) {
      inputs.push_back(changed(body, i));
      if (i == 0) inputs.back().first.range = {0, std::max(0.0, trips.high - 1)};
      if (i == 1) inputs.back().first.range = {0, 1};
    } else {
      inputs.push_back(outer(i));
    }
  }
  // A condition, what is carried, elements: what no iteration changed is that from before.
  Ranges results = walk_.run_body(op.body, step_, inputs);
  if (!results.empty()) results.erase(results.begin());
  for (size_t k = 0; k < results.size() && k < static_cast<size_t>(op.carried); ++k)
    results[k] = united(results[k], input(2 + k));
  return results;
}
RangeRules::Ranges RangeRules::operator()(const Scan& op) {
  if (op.body < 0 || op.body >= static_cast<int64_t>(walk_.plan().bodies.size())) return {};
  const Plan& body = walk_.plan().bodies[static_cast<size_t>(op.body)];
  const auto carried = static_cast<size_t>(op.carried);
  std::vector<Operand> inputs;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    if (i < carried + op.axes.size()) {
      inputs.push_back(changed(body, i));
      if (i >= carried) inputs.back().first = input(i);
    } else {
      inputs.push_back(outer(i));
    }
  }
  Ranges results = walk_.run_body(op.body, step_, inputs);
  for (size_t k = 0; k < results.size() && k < carried; ++k)
    results[k] = united(results[k], input(k));
  return results;
}

}  // namespace anneal
