// Models with operators of test_kernels.h, and engines that run them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anneal/core/parallel.h"
#include "anneal/engine/kernel_library.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/custom/test_kernels.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {

inline anneal_onnx::NodeProto& custom_node(ModelBuilder& model, const std::string& op,
                                           const std::vector<std::string>& inputs,
                                           const std::vector<std::string>& outputs,
                                           const std::string& name = "") {
  auto& node = model.node(op, inputs, outputs, name);
  node.set_domain("test");
  return node;
}

inline Graph imported(const ModelBuilder& model,
                      const CustomOperators& operators = test_operators()) {
  return import_bytes(model.bytes(), "", {.operators = operators}).graph;
}

// x[rows,4] -> op -> y.
inline ModelBuilder one_node(const std::string& op, const std::string& rows = "3") {
  ModelBuilder model;
  model.input("x", {rows, "4"}).output("y");
  custom_node(model, op, {"x"}, {"y"}, "node1");
  return model;
}

inline GraphBuildOptions options_for(const std::string& target) {
  GraphBuildOptions options;
  options.targets = {target};
  return options;
}

// Through bytes and back.
inline std::shared_ptr<const Engine> loaded(const EngineFile& file,
                                            const std::string& device = "cpu",
                                            const CustomOperators& operators = test_operators()) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  return make_engine(load_engine_file(*bytes, bytes, nullptr, operators), {.device = device});
}
inline std::shared_ptr<const Engine> engine_of(const ModelBuilder& model,
                                               const std::string& target = "cpu") {
  return loaded(build(imported(model), options_for(target)), target);
}

inline std::vector<float> numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 17) - 4);
  return values;
}
inline Tensor tensor(const Dims& dims) {
  return Tensor::of<float>(DataType::kF32, dims, numbers(count(dims)));
}
inline std::vector<float> run_one(ExecutionContext& context, const Tensor& x,
                                  std::string_view output = "y") {
  context.set_input("x", x.view());
  context.run();
  return elements(context.output(output));
}
inline std::vector<float> mapped(const Tensor& x, const std::function<float(float)>& map) {
  std::vector<float> values(x.as<float>().begin(), x.as<float>().end());
  for (float& value : values) value = map(value);
  return values;
}

inline std::vector<std::string> kernels_of(const Engine& engine) {
  std::vector<std::string> kernels;
  for (const Step& step : plan_of(engine).steps) kernels.push_back(step.kernel);
  return kernels;
}

inline ModelBuilder scale_model(const std::string& rows = "3") {
  ModelBuilder model;
  model.input("x", {rows, "4"}).output("y");
  auto& node = custom_node(model, "Scale", {"x"}, {"y"}, "node1");
  set(node, "alpha", 2.0F);
  set(node, "bias", std::vector<int64_t>{1, 2});
  set(node, "text", "four");
  auto* attribute = node.add_attribute();
  attribute->set_name("table");
  attribute->set_type(anneal_onnx::AttributeProto::TENSOR);
  attribute->mutable_t()->set_data_type(anneal_onnx::TensorProto::FLOAT);
  attribute->mutable_t()->add_dims(2);
  attribute->mutable_t()->add_float_data(0.25F);
  attribute->mutable_t()->add_float_data(0.5F);
  return model;
}
inline float scaled(float x) { return x * 2 + 1 + 2 + 4 + 0.75F; }

}  // namespace anneal::testing
