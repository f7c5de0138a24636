// The op cases: each runs on every kernel that accepts it, on every backend that has one.
#pragma once
#include <string>
#include <vector>

#include "anneal/graph/op/op.h"

namespace anneal::testing {

// Tensors as in tensor_text.h; "-" is an absent input, and "const f32[3]" a weight, which kernels
// see as a constant (and, in a second run, as a value like others).
struct OpCase {
  std::string name;  // unique, in the alphabet of test filters
  Op op;
  std::vector<std::string> inputs;
};

// Six files, so that each is short: windows, products and norms; attention; programs and
// reductions; what moves elements; recurrence; what detectors end with.
std::vector<OpCase> conv_op_cases();
std::vector<OpCase> nn_op_cases();
std::vector<OpCase> attention_op_cases();
std::vector<OpCase> arithmetic_op_cases();
std::vector<OpCase> movement_op_cases();
std::vector<OpCase> recurrent_op_cases();
std::vector<OpCase> detect_op_cases();
std::vector<OpCase> op_cases();  // all cases

}  // namespace anneal::testing
