// Attention as torch.onnx exports it (export_attention.py): each model is one Attention step, and
// its results are those of its layers one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/engine/expect_steps.h"

namespace anneal::testing {
namespace {

constexpr int64_t kHeads = 4, kWidth = 16;

struct ExportedModel {
  std::string name;
  double tolerance;  // of results about as large as 1
};
void PrintTo(const ExportedModel& model, std::ostream* out) { *out << model.name; }

std::vector<ExportedModel> all_models() {
  std::vector<ExportedModel> models = {{"rotary_groups.dynamo", 1e-5}};
  for (const std::string form : {"dynamo", "script"}) {
    for (const char* name : {"scaled", "boolean_mask", "nan_to_num", "all_masked", "all_scores"})
      models.push_back({name + ("." + form), 1e-5});
    models.push_back({"boolean_mask_f16." + form, 4e-3});
    models.push_back({"causal_bf16." + form, 3e-2});
  }
  return models;
}

// Every third key is hidden, and all keys of one query if `hides_row`.
Tensor mask_of(int64_t batch, int64_t length, bool hides_row) {
  std::vector<uint8_t> seen;
  for (int64_t i = 0; i < batch * length; ++i)
    for (int64_t key = 0; key < length; ++key)
      seen.push_back(static_cast<uint8_t>((i != 1 || !hides_row) && (key + i) % 3 != 0));
  NewTensor made = allocate_tensor(DataType::kBool, {batch, 1, length, length});
  std::ranges::copy(std::as_bytes(std::span(seen)), made.data.begin());
  return made.tensor;
}

std::vector<Tensor> inputs_of(const Graph& graph, int64_t batch, int64_t length,
                              bool hides_row = true) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs()) {
    const Type& type = graph.value(id).type();
    if (type.dtype == DataType::kBool) {
      inputs.push_back(mask_of(batch, length, hides_row));
      continue;
    }
    const Size heads = type.shape[1];
    inputs.push_back(random_f32({batch, heads.known() ? heads.value() : kHeads, length, kWidth},
                                static_cast<uint32_t>(inputs.size()) + 7));
  }
  return inputs;
}

class ExportedAttention : public ::testing::TestWithParam<ExportedModel> {};

TEST_P(ExportedAttention, IsOneStepWithTheSameResults) {
  const Graph graph = import_file("tests/engine/exported/" + GetParam().name + ".onnx", {}).graph;
  for (const std::string target : {"cpu", "emulated"}) {
    GraphBuildOptions options;
    options.targets = {target};
    const EngineFile file = build(graph.clone(), options);
    const StepsByOp steps = steps_by_op(file.plans[0]);
    EXPECT_EQ(steps.count("Attention") == 1 ? steps.at("Attention") : 0, 1U);
    for (const char* op : {"Softmax", "MatMul"}) EXPECT_EQ(steps.count(op), 0U) << op;

    const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
    const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = target});
    ExecutionContext context(engine);
    // In dynamo's models a Reshape fails on a length of 0. It hides keys of f16 by adding -65504,
    // which leaves nothing meaningful of a row that sees nothing.
    const bool is_script = GetParam().name.ends_with("script");
    for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{2, 70}, {1, 1}, {1, 0}}) {
      if (length == 0 && !is_script) continue;
      const bool hides_row = GetParam().name != "boolean_mask_f16.dynamo";
      const std::vector<Tensor> inputs = inputs_of(graph, batch, length, hides_row);
      const std::vector<float> got = run(context, *engine, inputs).at("y");
      const std::vector<float> want = elements(evaluate(graph, inputs)[0].view());
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], GetParam().tolerance) << target << " " << length << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExportedAttention, ::testing::ValuesIn(all_models()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Products of f16 may be beyond 65504 before a factor makes them small: the sums are f32.
TEST(AttentionOfHalves, ScalesBeforeAnythingIsF16) {
  const Graph graph = import_file("tests/engine/exported/boolean_mask_f16.script.onnx", {}).graph;
  for (const std::string target : {"cpu", "emulated"}) {
    GraphBuildOptions options;
    options.targets = {target};
    const EngineFile file = build(graph.clone(), options);
    const auto bytes = std::make_shared<std::vector<std::byte>>(save(file));
    const auto engine = make_engine(load_engine_file(*bytes, bytes), {.device = target});
    ExecutionContext context(engine);
    // The products are 16 * 80 * 80 = 102400, and alike.
    const std::vector<float> large(static_cast<size_t>(kHeads * 9 * kWidth), 80);
    std::vector<Tensor> inputs = inputs_of(graph, 1, 9);
    inputs[0] = inputs[1] = Tensor::of<float>(DataType::kF32, {1, kHeads, 9, kWidth}, large);
    const std::vector<float> got = run(context, *engine, inputs).at("y");
    const std::vector<float> v(inputs[2].as<float>().begin(), inputs[2].as<float>().end());
    for (int64_t head = 0; head < kHeads; ++head)
      for (int64_t query = 0; query < 9; ++query)
        for (int64_t i = 0; i < kWidth; ++i) {
          double sum = 0, seen = 0;
          for (int64_t key = 0; key < 9; ++key) {
            if (query == 1 || (key + query) % 3 == 0) continue;
            sum += v[static_cast<size_t>((head * 9 + key) * kWidth + i)];
            ++seen;
          }
          ASSERT_NEAR(got[static_cast<size_t>((head * 9 + query) * kWidth + i)],
                      seen == 0 ? 0 : sum / seen, 2e-3)
              << target << " " << head << " " << query;
        }
  }
}

}  // namespace
}  // namespace anneal::testing
