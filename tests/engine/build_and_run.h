// Builds and runs small graphs, on an engine and on the reference.
#pragma once
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/builder.h"
#include "anneal/engine/run/make_engine.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/evaluate.h"

namespace anneal::testing {

inline EngineFile build_text(std::string_view text, const GraphBuildOptions& options = {}) {
  return build(parse_graph(text), options);
}

// Through bytes and back, as a user's engine is.
inline std::shared_ptr<const Engine> engine_of(const EngineFile& file) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
  return make_engine(load_engine_file(*bytes, bytes));
}

inline Tensor random_f32(const Dims& dims, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count(dims)));
  for (float& value : values) value = normal(random);
  return Tensor::of<float>(DataType::kF32, dims, values);
}

inline Tensor tensor_i64(const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(DataType::kI64, {static_cast<int64_t>(values.size())}, values);
}

// A copy of a view's elements, row-major. REQUIRES: f32.
inline std::vector<float> elements(const ConstTensorView& view) {
  std::vector<float> result;
  const int64_t total = count(view.dims);
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i, at = 0;
    for (int axis = view.dims.rank() - 1; axis >= 0; --axis) {
      at += rest % view.dims[axis] * view.strides[axis];
      rest /= view.dims[axis];
    }
    result.push_back(reinterpret_cast<const float*>(view.data)[at]);
  }
  return result;
}

inline std::map<std::string, std::vector<float>> run(ExecutionContext& context,
                                                     const Engine& engine,
                                                     const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    context.set_input(engine.inputs()[i].name, inputs[i].view());
  context.run();
  std::map<std::string, std::vector<float>> outputs;
  for (const TensorInfo& port : engine.outputs())
    outputs[port.name] = elements(context.output(port.name));
  return outputs;
}

// What the unoptimized graph gives on the reference kernels.
inline std::map<std::string, std::vector<float>> reference(std::string_view text,
                                                           const std::vector<Tensor>& inputs) {
  const Graph graph = parse_graph(text);
  const std::vector<Tensor> results = evaluate(graph, inputs);
  std::map<std::string, std::vector<float>> outputs;
  for (size_t i = 0; i < results.size(); ++i)
    outputs[graph.outputs()[i].name] = elements(results[i].view());
  return outputs;
}

}  // namespace anneal::testing
