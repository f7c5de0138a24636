// A model as text, in the form that onnx.parser reads, for small constants.
#pragma once
#include <string>

#include "anneal/importer/onnx/onnx.pb.h"

namespace anneal::random_graphs {

std::string model_text(const anneal_onnx::ModelProto& model);

}  // namespace anneal::random_graphs
