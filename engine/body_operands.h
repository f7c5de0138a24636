// What the operands of a layer of control flow are to its bodies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "anneal/graph/op/op.h"

namespace anneal {

struct BodyOperand {
  int64_t port = -1;  // the input of the bodies that it is, or the output that gives it; -1: none
  bool is_read = false;  // by the context: a condition or a trip count
  int64_t axis = 0;      // that the port lacks: each iteration has one slice of the operand
};
struct BodyOperands {
  std::vector<BodyOperand> inputs, outputs;
  size_t first_carried = 0, carried = 0;  // inputs; output k is the last value of carried input k
};
// inputs, outputs: how many the layer has. REQUIRES: an op with bodies, and operands that
// infer_layer() accepts
BodyOperands operands_of_bodies(const Op& op, size_t inputs, size_t outputs);

}  // namespace anneal
