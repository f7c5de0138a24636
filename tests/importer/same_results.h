// Models that give the same results though they are written differently.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "anneal/importer/importer.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/optimizer/evaluate.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {

using Build = std::function<void(ModelBuilder&)>;

struct FloatInput {
  std::string name;
  std::vector<int64_t> dims;
};

inline std::vector<double> values_of(const std::vector<FloatInput>& inputs, const Build& build) {
  ModelBuilder model(28);
  std::vector<Tensor> tensors;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (const FloatInput& input : inputs) {
    std::vector<std::string> dims;
    for (const int64_t dim : input.dims) dims.push_back(std::to_string(dim));
    model.input(input.name, dims);
    const Dims shape{std::span<const int64_t>(input.dims)};
    std::vector<double> values(static_cast<size_t>(count(shape)));
    for (double& value : values) value = unit(random);
    tensors.push_back(tensor_of(DataType::kF32, shape, values));
  }
  model.output("y");
  build(model);
  const Graph graph = import_bytes(model.bytes(), "").graph;
  return numbers_of(evaluate(graph, tensors)[0]);
}

inline void expect_same(const std::vector<FloatInput>& inputs, const Build& one,
                        const Build& several) {
  const auto got = values_of(inputs, one), want = values_of(inputs, several);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << i;
}

inline anneal_onnx::NodeProto& microsoft(ModelBuilder& m, const char* op,
                                         const std::vector<std::string>& inputs,
                                         const std::vector<std::string>& outputs = {"y"}) {
  anneal_onnx::NodeProto& node = m.node(op, inputs, outputs);
  node.set_domain("com.microsoft");
  return node;
}

}  // namespace anneal
