// Two models of one topology with other weights, and their engines.
#pragma once
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {

using Bytes = std::vector<std::byte>;

// Seeds of the weights in the engine and in the new model.
inline constexpr unsigned kOld = 1, kNew = 100;

inline std::vector<float> drawn(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct NetworkForm {
  std::string input = "image", batch = "1", side = "12";
  int64_t channels = 16;  // of the first convolution
  bool has_extra_node = false;
  float slope = 0.1F;  // a scalar, which becomes a literal of a program
};

// Two convolutions with biases, a leaky ReLU of a scalar weight, a mean and a product. `seed`
// decides the weights alone.
inline ModelBuilder network(unsigned seed, const NetworkForm& form = {}) {
  ModelBuilder made;
  const auto c = form.channels;
  made.input(form.input, {form.batch, "3", form.side, form.side});
  made.floats("w1", {c, 3, 3, 3}, drawn(seed, static_cast<size_t>(c) * 27));
  made.floats("b1", {c}, drawn(seed + 1, static_cast<size_t>(c)));
  made.floats("w2", {32, c, 3, 3}, drawn(seed + 2, 32 * static_cast<size_t>(c) * 9));
  made.floats("b2", {32}, drawn(seed + 3, 32));
  made.floats("slope", {}, {form.slope});
  made.floats("w3", {32, 10}, drawn(seed + 4, 320));
  made.floats("b3", {10}, drawn(seed + 5, 10));
  set(made.node("Conv", {form.input, "w1", "b1"}, {"c1"}, "conv1"), "pads",
      std::vector<int64_t>{1, 1, 1, 1});
  made.node("Relu", {"c1"}, {"r1"}, "relu1");
  set(made.node("Conv", {"r1", "w2", "b2"}, {"c2"}, "conv2"), "pads",
      std::vector<int64_t>{1, 1, 1, 1});
  made.node("PRelu", {"c2", "slope"}, {"r2"}, "leaky");
  std::string last = "r2";
  if (form.has_extra_node) {
    made.node("Softmax", {"r2"}, {"extra"}, "extra");
    last = "extra";
  }
  made.node("GlobalAveragePool", {last}, {"p"}, "pool");
  set(made.node("Flatten", {"p"}, {"f"}, "flat"), "axis", int64_t{1});
  made.node("Gemm", {"f", "w3", "b3"}, {"scores"}, "gemm");
  made.output("scores");
  return made;
}

inline Bytes model(unsigned seed, const NetworkForm& form = {}) {
  return network(seed, form).bytes();
}

inline std::shared_ptr<const Dataset> samples(int64_t count, const std::string& input = "image") {
  return make_dataset(count, [input](int64_t i) {
    return std::vector<SampleTensor>{
        {input, Tensor::of<float>(DataType::kF32, {1, 3, 12, 12},
                                  drawn(1000 + static_cast<unsigned>(i), 432))}};
  });
}

}  // namespace anneal::testing
