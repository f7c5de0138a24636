// Whether a layer computes each row of a batch by itself, wherever the rows lie in its operands.
#pragma once
#include <span>
#include <vector>

#include "anneal/core/shape.h"
#include "anneal/graph/op/op.h"

namespace anneal {

// An input or output of a layer.
struct BatchOperand {
  static constexpr int kNoRows = -1;

  const Shape* shape = nullptr;  // null: an absent input
  int axis = kNoRows;            // of the rows; kNoRows: every row reads the same elements
  bool counts_rows = false;      // its elements follow from the number of rows
  const std::vector<Size>* elements = nullptr;  // of a small tensor (Fact); null: not known

  bool has_rows() const { return axis != kNoRows; }
};

struct BatchLayer {
  const Op& op;
  std::span<const Program> epilogues;
  size_t op_input_count = 0;
  std::span<const BatchOperand> inputs, outputs;  // those of epilogues included
};

// Whether row r of each output follows from row r of the inputs alone. False where that is not
// proved.
bool computes_rows_apart(const BatchLayer& layer);

}  // namespace anneal
