// What the references must give: numbers worked out by hand, or from the examples of the ONNX
// standard.
#pragma once
#include <string>
#include <vector>

#include "anneal/graph/op/op.h"

namespace anneal::testing {

// Tensors as in tensor_text.h; "-" is an absent input. Epilogues are program texts ("" passes on);
// their further inputs follow the op's own.
struct ReferenceCase {
  std::string name;
  Op op;
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> epilogues = {};
};

// Four files, so that each is short.
std::vector<ReferenceCase> nn_reference_cases();
std::vector<ReferenceCase> data_reference_cases();
std::vector<ReferenceCase> recurrent_reference_cases();
std::vector<ReferenceCase> detect_reference_cases();

}  // namespace anneal::testing
