// The ranges of a step's results, given those of its inputs: one overload for each op.
#pragma once
#include <utility>
#include <vector>

#include "anneal/engine/builder/inputs/range_readers.h"

namespace anneal {

// A visitor of the step's op. Reports the inputs that the step reads to the findings of the walk.
class RangeRules {
 public:
  using Ranges = std::vector<ValueRange>;  // by output
  RangeRules(ValueWalk& walk, const Step& step) : walk_(walk), step_(step), readers_(walk) {}

  // Nothing is known.
  template <class T>
  Ranges operator()(const T&) {
    return {};
  }
  Ranges operator()(const Pointwise& op);
  Ranges operator()(const Attention& op);
  Ranges operator()(const Softmax& op);
  Ranges operator()(const Reduce& op);
  Ranges operator()(const Cumulative& op);
  Ranges operator()(const ArgReduce& op);
  Ranges operator()(const TopK& op);
  Ranges operator()(const NonZero&);
  Ranges operator()(const Unique& op);
  Ranges operator()(const NonMaxSuppression&);
  Ranges operator()(const Reshape&);
  Ranges operator()(const Transpose&);
  Ranges operator()(const Slice&);
  Ranges operator()(const Expand&);
  Ranges operator()(const Tile&);
  Ranges operator()(const Require&);
  Ranges operator()(const Concat& op);
  Ranges operator()(const Pad& op);
  Ranges operator()(const ReverseSequence& op);
  Ranges operator()(const Recurrent&);
  Ranges operator()(const Resize& op);
  Ranges operator()(const Pool& op);
  Ranges operator()(const Gather& op);
  Ranges operator()(const GatherElements& op);
  Ranges operator()(const GatherND& op);
  Ranges operator()(const ScatterElements& op);
  Ranges operator()(const ScatterND& op);
  Ranges operator()(const RoiAlign&);
  Ranges operator()(const Range&);
  Ranges operator()(const ShapeOf&);
  Ranges operator()(const If& op);
  Ranges operator()(const Loop& op);
  Ranges operator()(const Scan& op);

 private:
  using Operand = std::pair<ValueRange, Fact>;

  ValueRange input(size_t i) { return walk_.input(step_, i); }
  bool has(size_t i) const { return ValueWalk::has(step_, i); }
  Ranges op_inputs();
  Ranges first_input();
  ValueRange mapped(const Program& map, size_t skipped, size_t dims_of);
  ValueRange gathered();
  ValueRange scattered(ScatterReduction reduction);
  void keep_least_dims();
  void least_of_concat(int64_t axis);
  Operand outer(size_t i);
  static Operand changed(const Plan& body, size_t i);

  ValueWalk& walk_;
  const Step& step_;
  RangeReaders readers_;
};

}  // namespace anneal
