// The report of a graph that fails.
#pragma once
#include <string>

#include "anneal/tests/random/judge.h"

namespace anneal::random_graphs {

// The command that repeats it, the failure, and the reduced graph as text.
std::string report(const Recipe& recipe, const Failure& failure, const RandomModel& reduced);
// model.onnx and test_data_set_N/{input,output}_K.pb of every binding. Outputs are the reference's,
// if it has any.
void save_case(const std::string& folder, const RandomModel& model, const std::string& note);
// The ONNX form of a tensor.
anneal_onnx::TensorProto tensor_proto(const std::string& name, const Tensor& tensor);

}  // namespace anneal::random_graphs
