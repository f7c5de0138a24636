#include "anneal/cli/model/import_model.h"

#include "anneal/engine/onnx/import_model.h"

namespace anneal {

ImportResult import_model(const std::string& path, const ShapeFlags& flags) {
  return import_model_for_inputs(path, flags, {});
}

ImportResult import_model_for_inputs(const std::string& path, const ShapeFlags& flags,
                                     std::span<const std::string> inputs) {
  BuildOptions options;
  set_shapes_for_inputs(path, flags, inputs, options);
  return import_model(OnnxModel(path), options);
}

}  // namespace anneal
