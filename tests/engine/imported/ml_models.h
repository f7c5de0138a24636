// Models of one operator of ai.onnx.ml, built and run.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline void set_floats(anneal_onnx::NodeProto& node, const std::string& name,
                       const std::vector<float>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::FLOATS);
  for (const float value : values) attribute->add_floats(value);
}
inline void set_texts(anneal_onnx::NodeProto& node, const std::string& name,
                      const std::vector<std::string>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) attribute->add_strings(value);
}
inline void set_tensor(anneal_onnx::NodeProto& node, const std::string& name, int type,
                       const std::vector<double>& values) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(anneal_onnx::AttributeProto::TENSOR);
  auto* tensor = attribute->mutable_t();
  tensor->set_data_type(type);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (const double value : values) {
    if (type == anneal_onnx::TensorProto::FLOAT) tensor->add_float_data(static_cast<float>(value));
    if (type == anneal_onnx::TensorProto::DOUBLE) tensor->add_double_data(value);
    if (type == anneal_onnx::TensorProto::UINT8) tensor->add_int32_data(static_cast<int>(value));
  }
}

using Fill = std::function<void(anneal_onnx::NodeProto&)>;

inline ModelBuilder model_of(const char* op, const Fill& fill, int version, int inputs,
                             int outputs) {
  ModelBuilder model(18);
  auto* import = model.model.add_opset_import();
  import->set_domain("ai.onnx.ml");
  import->set_version(version);
  std::vector<std::string> from, to;
  for (int i = 0; i < inputs; ++i) from.push_back(fmt::format("x{}", i));
  for (int i = 0; i < outputs; ++i) to.push_back(fmt::format("y{}", i));
  for (const std::string& name : to) model.output(name);
  anneal_onnx::NodeProto& node = model.node(op, from, to, "it");
  node.set_domain("ai.onnx.ml");
  fill(node);
  return model;
}

inline int onnx_type(DataType dtype) {
  switch (dtype) {
    case DataType::kF64:
      return anneal_onnx::TensorProto::DOUBLE;
    case DataType::kI64:
      return anneal_onnx::TensorProto::INT64;
    default:
      return anneal_onnx::TensorProto::FLOAT;
  }
}

inline std::vector<Tensor> run_model(const ModelBuilder& model, const std::vector<Tensor>& inputs) {
  const auto engine = engine_of(build(import_bytes(model.bytes(), "").graph, {}));
  ExecutionContext context(engine);
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(fmt::format("x{}", i), inputs[i].view());
  context.run();
  std::vector<Tensor> results;
  for (const TensorInfo& port : engine->outputs()) {
    const ConstTensorView view = context.output(port.name);
    const auto bytes = static_cast<size_t>(count(view.dims)) * size_of(view.dtype);
    results.push_back(Tensor::copy_of(view.dtype, view.dims, {view.data, bytes}));
  }
  return results;
}

// The outputs of one node. The number of rows of a single input is open.
inline std::vector<Tensor> run_node(const char* op, const std::vector<Tensor>& inputs,
                                    const Fill& fill, int outputs = 1, int version = 3) {
  ModelBuilder model = model_of(op, fill, version, static_cast<int>(inputs.size()), outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<std::string> dims;
    for (int axis = 0; axis < inputs[i].dims().rank(); ++axis)
      dims.push_back(axis == 0 && inputs.size() == 1 ? "rows"
                                                     : std::to_string(inputs[i].dims()[axis]));
    model.input(fmt::format("x{}", i), dims, onnx_type(inputs[i].dtype()));
  }
  return run_model(model, inputs);
}

inline Tensor rows(const std::vector<std::vector<double>>& values,
                   DataType dtype = DataType::kF32) {
  std::vector<double> flat;
  for (const auto& row : values) flat.insert(flat.end(), row.begin(), row.end());
  return tensor_of(
      dtype, {static_cast<int64_t>(values.size()), static_cast<int64_t>(values[0].size())}, flat);
}
inline Tensor integers(const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size()), 1}, values);
}

MATCHER_P(Near, tolerance, "") {
  const double got = std::get<0>(arg), want = std::get<1>(arg);
  return (std::isnan(got) && std::isnan(want)) ||
         std::abs(got - want) <= tolerance * (1 + std::abs(want));
}
inline auto near_all(const std::vector<double>& want) {
  return ::testing::Pointwise(Near(1e-6), want);
}

}  // namespace anneal::testing
