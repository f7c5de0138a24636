// GatedDeltaNet of several positions, which is a loop: from ONNX to results.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/delta_nets.h"

namespace anneal::testing {
namespace {

using Make = void (*)(ModelBuilder&, const DeltaNet&, bool);

std::vector<float> results_of(const DeltaNet& net, bool is_state, Make make) {
  ModelBuilder model(28);
  std::vector<Tensor> tensors;
  for (const FloatInput& input : inputs_of(net)) {
    const Dims shape{std::span<const int64_t>(input.dims)};
    std::vector<std::string> dims;
    for (const int64_t dim : input.dims) dims.push_back(std::to_string(dim));
    model.input(input.name, dims);
    std::vector<double> values;
    for (int64_t i = 0; i < count(shape); ++i)
      values.push_back(std::sin(static_cast<double>(7 * i + std::ssize(tensors))));
    tensors.push_back(tensor_of(DataType::kF32, shape, values));
  }
  model.output("y");
  make(model, net, is_state);
  const auto engine = engine_of(build(import_bytes(model.bytes(), "").graph, {}));
  ExecutionContext context(engine);
  return run(context, *engine, tensors).at("y");
}

TEST(GatedDeltaNet, OfSeveralPositionsIsLinearAttention) {
  for (DeltaNet net : delta_nets()) {
    net.length = 3;
    for (const bool is_state : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", net.rule, net.gate, net.layout, is_state));
      const auto one = results_of(net, is_state, gated_delta_net);
      const auto several = results_of(net, is_state, linear_attention);
      EXPECT_THAT(one, ::testing::Pointwise(::testing::FloatNear(1e-5F), several));
    }
  }
}

}  // namespace
}  // namespace anneal::testing
