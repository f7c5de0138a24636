// The numbers that layers accept as indices, lengths and sizes.
#pragma once
#include "anneal/engine/builder/inputs/value_walk.h"

namespace anneal {

// An axis of a slot of the outermost plan; none: the limit is no axis.
struct LimitingAxis {
  uint32_t slot = kNoSlot;
  int axis = 0;
};

// Notes refusals and uses in the walk's findings.
class RangeReaders {
 public:
  explicit RangeReaders(ValueWalk& walk) : walk_(walk) {}

  void refuse_beyond(const ValueRange& value, const ValueInterval& accepted,
                     LimitingAxis limit = {});
  // An index along an axis of a slot.
  void read_index(const Step& step, size_t i, uint32_t of, int64_t axis, bool is_place);
  // The last axis of the indices goes through axes of the slot; operands of a Concat apart.
  void read_tuples(const Step& step, uint32_t of, int64_t first_axis, bool is_place);
  // Axes of a tensor of that rank, each once.
  void read_axes(const ValueRange& axes, int rank);
  // For an axis of a slot.
  void read_length(const ValueRange& length, uint32_t of, int64_t axis);
  void read_size(const ValueRange& size, const ValueInterval& accepted);
  // A number of elements that values decide, as far as they do.
  void read_size_input(const Step& step, size_t i, double least);
  // For a number of elements.
  void read_end(const ValueRange& end);

 private:
  void read_index(const ValueRange& index, uint32_t of, int64_t axis, bool is_place);
  LimitingAxis limit(uint32_t slot, int64_t axis) const;

  ValueWalk& walk_;
};

// A size that an input's value decides is hardly meant to be larger.
inline constexpr double kLargestDecidedSize = 1024;

}  // namespace anneal
