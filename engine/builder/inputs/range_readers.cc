#include "anneal/engine/builder/inputs/range_readers.h"

#include <algorithm>
#include <cmath>

namespace anneal {
namespace {

void note(std::map<int, ValueInterval>& uses, int port, const ValueInterval& range) {
  const auto [known, is_new] = uses.emplace(port, range);
  if (!is_new) known->second = united(known->second, range);
}

}  // namespace

void RangeReaders::refuse_beyond(const ValueRange& value, const ValueInterval& accepted,
                                 LimitingAxis limit) {
  const ValueInterval& range = value.range;
  if (range.low >= accepted.low && range.high <= accepted.high) return;
  RangeFindings& findings = walk_.findings();
  ++findings.refusals;
  if (!findings.first) findings.first = {findings.step, range, accepted, limit.slot, limit.axis};
}

LimitingAxis RangeReaders::limit(uint32_t slot, int64_t axis) const {
  if (!walk_.is_outermost()) return {};
  return {slot, static_cast<int>(axis)};
}

void RangeReaders::read_index(const Step& step, size_t i, uint32_t of, int64_t axis,
                              bool is_place) {
  read_index(walk_.value(step.inputs[i]), of, axis, is_place);
}

void RangeReaders::read_index(const ValueRange& index, uint32_t of, int64_t axis, bool is_place) {
  const auto size = walk_.size_of_axis(of, axis);
  if (!size || *size < 1) return;
  refuse_beyond(index, {-*size, *size - 1}, limit(of, axis));
  if (index.port < 0) return;
  note(walk_.findings().indices, index.port, {0, *size - 1});
  if (is_place) note(walk_.findings().places, index.port, {0, *size - 1});
}

void RangeReaders::read_tuples(const Step& step, uint32_t of, int64_t first_axis, bool is_place) {
  const uint32_t indices = step.inputs[1];
  const auto count = walk_.size_of_axis(indices, walk_.shape(indices).rank() - 1);
  if (!count) return;
  const auto columns = walk_.columns_of(indices);
  for (const auto& [column, slot] : columns)
    read_index(walk_.value(slot), of, first_axis + column, is_place);
  if (!columns.empty()) return;
  // All columns have one interval. An input is drawn for the narrowest axis; of what is computed
  // nothing is known beyond the widest.
  const ValueRange tuples = walk_.value(indices);
  const bool is_input = tuples.port >= 0;
  std::optional<int64_t> decisive;
  for (int64_t axis = first_axis; axis < first_axis + static_cast<int64_t>(*count); ++axis) {
    const auto size = walk_.size_of_axis(of, axis);
    if (!size) return;
    const auto best = decisive ? walk_.size_of_axis(of, *decisive) : size;
    if (!decisive || (is_input ? *size < *best : *size > *best)) decisive = axis;
  }
  if (decisive) read_index(tuples, of, *decisive, is_place);
}

void RangeReaders::read_axes(const ValueRange& axes, int rank) {
  if (rank < 1) return;
  refuse_beyond(axes, {-static_cast<double>(rank), static_cast<double>(rank) - 1});
  if (axes.port < 0) return;
  note(walk_.findings().indices, axes.port, {0, static_cast<double>(rank) - 1});
  note(walk_.findings().places, axes.port, {0, static_cast<double>(rank) - 1});
}

void RangeReaders::read_length(const ValueRange& length, uint32_t of, int64_t axis) {
  const auto size = walk_.size_of_axis(of, axis);
  if (!size) return;
  refuse_beyond(length, {0, *size}, limit(of, axis));
  if (length.port >= 0) note(walk_.findings().indices, length.port, {1, *size});
}

void RangeReaders::read_size(const ValueRange& size, const ValueInterval& accepted) {
  refuse_beyond(size, accepted);
  if (size.port >= 0) note(walk_.findings().sizes, size.port, accepted);
}

void RangeReaders::read_size_input(const Step& step, size_t i, double least) {
  if (ValueWalk::has(step, i) && walk_.is_decided_late(step.inputs[i]))
    read_size(walk_.input(step, i), {least, kLargestDecidedSize});
}

void RangeReaders::read_end(const ValueRange& end) {
  if (end.port >= 0) note(walk_.findings().sizes, end.port, {0, kLargestDecidedSize});
}

}  // namespace anneal
