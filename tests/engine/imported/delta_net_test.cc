// GatedDeltaNet of several positions: from ONNX to results.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

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

// Of one batch and two heads; the rule gated_delta, in f64, by its definition.
struct TwoHeads {
  int64_t length = 6, k = 3, v = 2;
  std::vector<float> q{}, keys{}, values{}, state{}, decay{}, beta{}, y{};

  void run() {
    y.resize(static_cast<size_t>(length * 2 * v));
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<double> s(state.begin() + head * k * v, state.begin() + (head + 1) * k * v);
      for (int64_t t = 0; t < length; ++t) {
        const auto at = [&](const std::vector<float>& x, int64_t width, int64_t i) -> double {
          return x[static_cast<size_t>((t * 2 + head) * width + i)];
        };
        for (double& number : s) number *= std::exp(at(decay, 1, 0));
        for (int64_t j = 0; j < v; ++j) {
          double added = at(values, v, j), read = 0;
          for (int64_t i = 0; i < k; ++i)
            added -= at(keys, k, i) * s[static_cast<size_t>(i * v + j)];
          for (int64_t i = 0; i < k; ++i) {
            double& number = s[static_cast<size_t>(i * v + j)];
            number += at(keys, k, i) * at(beta, 1, 0) * added;
            read += at(q, k, i) * number;
          }
          y[static_cast<size_t>((t * 2 + head) * v + j)] = static_cast<float>(0.5 * read);
        }
      }
      std::copy(s.begin(), s.end(), state.begin() + head * k * v);
    }
  }
};

TEST(LinearAttention, FollowsItsDefinitionAndUpdatesItsStateInPlace) {
  ModelBuilder model(28);
  model.input("q", {"1", "T", "6"}).input("k", {"1", "T", "6"}).input("v", {"1", "T", "4"});
  model.input("past", {"1", "2", "3", "2"}).input("g", {"1", "T", "2"}).input("b", {"1", "T", "2"});
  auto& node = model.node("LinearAttention", {"q", "k", "v", "past", "g", "b"}, {"y", "present"});
  set(node, "q_num_heads", int64_t{2});
  set(node, "kv_num_heads", int64_t{2});
  set(node, "update_rule", "gated_delta");
  set(node, "scale", 0.5F);
  model.output("y").output("present");
  const EngineFile file = build(import_bytes(model.bytes(), "").graph, {});
  EXPECT_THAT(file.plans[0].updated_ports, ::testing::Contains(PortPair{3, 1}));
  const auto engine = engine_of(file);
  ExecutionContext context(engine);
  for (const int64_t length : {1, 6, 17}) {
    // Keys and decays of which the state does not grow.
    const auto tensor = [](const Dims& dims, uint32_t seed) {
      std::vector<float> values = elements(random_f32(dims, seed).view());
      for (float& value : values)
        value = seed == 5 ? -std::fabs(value) : std::clamp(0.4F * value, -0.5F, 0.5F);
      return Tensor::of<float>(DataType::kF32, dims, values);
    };
    const std::vector<Tensor> inputs = {tensor({1, length, 6}, 1), tensor({1, length, 6}, 2),
                                        tensor({1, length, 4}, 3), tensor({1, 2, 3, 2}, 4),
                                        tensor({1, length, 2}, 5), tensor({1, length, 2}, 6)};
    TwoHeads expected{.length = length};
    std::vector<float>* const all[] = {&expected.q,     &expected.keys,  &expected.values,
                                       &expected.state, &expected.decay, &expected.beta};
    for (size_t i = 0; i < inputs.size(); ++i) *all[i] = elements(inputs[i].view());
    expected.run();
    const auto results = run(context, *engine, inputs);
    EXPECT_THAT(results.at("y"), ::testing::Pointwise(::testing::FloatNear(1e-5F), expected.y));
    EXPECT_THAT(results.at("present"),
                ::testing::Pointwise(::testing::FloatNear(1e-5F), expected.state));
  }
}

}  // namespace
}  // namespace anneal::testing
