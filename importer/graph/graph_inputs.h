// Types of graph inputs: ONNX's named and unnamed sizes become symbols with bounds.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/graph/import_options.h"

namespace anneal_onnx {
class TensorShapeProto;
class TypeProto;
class ValueInfoProto;
}  // namespace anneal_onnx

namespace anneal {

class GraphInputs {
 public:
  // inputs: the inputs that the user feeds. Fails with kInvalidArgument if the bounds name an input
  // that is not there or contradict the model or each other.
  GraphInputs(SizeTable& sizes, const std::vector<const anneal_onnx::ValueInfoProto*>& inputs,
              const ImportOptions& options);
  // Fails with kUnsupported or kInvalidModel; the caller names the input. default_value: of an
  // input that has one. It gives sizes where the model gives none, and the opt values of open sizes
  // unless bounds give others.
  Type type_of(const anneal_onnx::ValueInfoProto& input, const Tensor* default_value = nullptr);

 private:
  Type declared_type(const anneal_onnx::ValueInfoProto& input, const Tensor* default_value);
  Shape shape_of(const anneal_onnx::TensorShapeProto& proto, const std::string& input);
  Size named_size(const std::string& param);
  Size bounded(const std::string& symbol, const Bounds& bounds);

  SizeTable& sizes_;
  std::map<std::string, InputBounds> given_;
  std::map<std::string, Bounds> bounds_;  // of named sizes
  std::map<std::string, Size> named_;
};

}  // namespace anneal
