// Types of graph inputs: ONNX's named and unnamed sizes become symbols with bounds.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/importer/graph/import_options.h"
#include "anneal/importer/node/open_batch.h"

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
  // That the bounds open in place of a number; empty: none.
  const std::optional<OpenBatch>& batch() const { return batch_; }

 private:
  // Why it cannot be; empty: it is open.
  std::string open_batch(const std::string& input, int64_t in_model, const Bounds& bounds);
  Type declared_type(const anneal_onnx::ValueInfoProto& input, const Tensor* default_value);
  Shape shape_of(const anneal_onnx::TensorShapeProto& proto, const std::string& input);
  Size named_size(const std::string& param);
  Size bounded(const std::string& symbol, const Bounds& bounds);

  SizeTable& sizes_;
  std::map<std::string, InputBounds> given_;
  std::map<std::string, Bounds> bounds_;  // of named sizes
  std::map<std::string, Size> named_;
  std::optional<OpenBatch> batch_;
};

}  // namespace anneal
