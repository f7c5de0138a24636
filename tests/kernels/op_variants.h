// An op case in all the ways it is run: with and without an epilogue, with known and symbolic
// sizes, with weights as constants.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/tests/kernels/layer_run.h"
#include "anneal/tests/kernels/op_cases.h"

namespace anneal::testing {

struct Variant {
  std::string what;  // "bias_relu, symbolic sizes"
  std::unique_ptr<TestLayer> layer;
  std::unique_ptr<SizeTable> sizes;
  RunOptions options;  // points into `sizes`
};

// Layers that all give the same.
struct Variants {
  std::vector<Variant> ways;
  std::vector<Tensor> wanted;  // by the CPU's reference
};

// One per epilogue. constant_integers: with inputs of integers behind the first as constants, too,
// for kernels that know what decides shapes when they are made. Fails if the reference refuses.
std::vector<Variants> variants_of(const OpCase& each, Device& cpu, bool constant_integers = false);

// Where its tensors may lie, without those that make no difference below three axes.
std::vector<Placement> placements_of(const TestLayer& layer);

}  // namespace anneal::testing
