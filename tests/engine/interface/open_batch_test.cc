// Models with a fixed batch that a profile opens: the same results, or a refusal that names the
// node.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> numbers(int64_t count, uint32_t seed) {
  const Tensor made = random_f32({count}, seed);
  const auto values = made.as<float>();
  return {values.begin(), values.end()};
}

// A model whose input x has `batch` rows of `row`.
struct FixedModel {
  const char* what;
  Dims row;  // without the batch
  std::function<ModelBuilder(int64_t batch)> make;
  void with_input(ModelBuilder& model, int64_t batch) const {
    std::vector<std::string> dims = {std::to_string(batch)};
    for (const int64_t size : row) dims.push_back(std::to_string(size));
    model.input("x", dims).output("y");
  }
  std::vector<std::byte> bytes(int64_t batch) const {
    ModelBuilder model = make(batch);
    with_input(model, batch);
    return model.bytes();
  }
  Dims dims(int64_t rows) const {
    Dims all = {rows};
    for (const int64_t size : row) all.push_back(size);
    return all;
  }
};

// Of a GRU with 3 features and 4 hidden ones.
void add_recurrent_weights(ModelBuilder& model) {
  model.floats("w", {1, 12, 3}, numbers(36, 21)).floats("r", {1, 12, 4}, numbers(48, 22));
}

const FixedModel kOpened[] = {
    {"a flat tensor for a product",
     {3, 4, 4},
     [](int64_t batch) {
       ModelBuilder model;
       model.floats("w", {5, 3, 3, 3}, numbers(135, 1)).floats("m", {20, 7}, numbers(140, 2));
       model.node("Conv", {"x", "w"}, {"c"});
       model.integers("flat", {batch, 20});
       model.node("Relu", {"c"}, {"r"});
       model.node("Reshape", {"r", "flat"}, {"f"});
       model.node("MatMul", {"f", "m"}, {"y"});
       return model;
     }},
    {"a shape with an inferred size",
     {6, 2, 2},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("sizes", {batch, -1, 3});
       model.node("Reshape", {"x", "sizes"}, {"r"});
       set(model.node("Softmax", {"r"}, {"y"}), "axis", int64_t{2});
       return model;
     }},
    {"a shape that copies sizes",
     {6, 4},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("sizes", {batch, 0, 2, 2});
       model.node("Reshape", {"x", "sizes"}, {"y"});
       return model;
     }},
    {"a shape in an attribute",
     {6, 2},
     [](int64_t batch) {
       ModelBuilder model(4);
       set(model.node("Reshape", {"x"}, {"r"}), "shape", std::vector<int64_t>{batch, 4, 3});
       model.node("Tanh", {"r"}, {"y"});
       return model;
     }},
    {"a shape from parts",
     {6, 2},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("rows", {batch}).integers("sizes", {3, 4});
       set(model.node("Concat", {"rows", "sizes"}, {"shape"}), "axis", int64_t{0});
       model.node("Reshape", {"x", "shape"}, {"y"});
       return model;
     }},
    {"an image that grows to given sizes",
     {2, 3, 3},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("sizes", {batch, 2, 6, 5});
       set(model.node("Resize", {"x", "", "", "sizes"}, {"y"}), "mode", "linear");
       return model;
     }},
    {"sizes of axes in another order",
     {2, 3, 3},
     [](int64_t batch) {
       ModelBuilder model(18);
       model.integers("sizes", {6, batch, 5});
       auto& node = model.node("Resize", {"x", "", "", "sizes"}, {"y"});
       set(node, "axes", std::vector<int64_t>{2, 0, 3});
       return model;
     }},
    {"repeated elements of each row",
     {1, 4},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("sizes", {batch, 3, 4});
       model.node("Expand", {"x", "sizes"}, {"e"});
       set(model.node("Softmax", {"e"}, {"y"}), "axis", int64_t{2});
       return model;
     }},
    {"attention",
     {5, 8},
     [](int64_t batch) {
       ModelBuilder model;
       model.integers("heads", {batch, 5, 2, 4}).integers("together", {batch, 5, 8});
       model.floats("w", {8, 8}, numbers(64, 3));
       model.node("MatMul", {"x", "w"}, {"p"});
       model.node("Reshape", {"p", "heads"}, {"h"});
       set(model.node("Transpose", {"h"}, {"q"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
       set(model.node("Transpose", {"h"}, {"k"}), "perm", std::vector<int64_t>{0, 2, 3, 1});
       model.node("MatMul", {"q", "k"}, {"s"});
       set(model.node("Softmax", {"s"}, {"a"}), "axis", int64_t{3});
       model.node("MatMul", {"a", "q"}, {"m"});
       set(model.node("Transpose", {"m"}, {"t"}), "perm", std::vector<int64_t>{0, 2, 1, 3});
       model.node("Reshape", {"t", "together"}, {"y"});
       return model;
     }},
    {"the same part of each row, within zeros",
     {6, 4},
     [](int64_t) {
       ModelBuilder model;
       model.integers("starts", {0, 1})
           .integers("ends", {std::numeric_limits<int32_t>::max(), 5})
           .integers("axes", {0, 1});
       model.integers("pads", {0, 1, 2, 0, 0, 1});
       model.node("Slice", {"x", "starts", "ends", "axes"}, {"s"});
       model.node("Pad", {"s", "pads"}, {"p"});
       set(model.node("Softmax", {"p"}, {"y"}), "axis", int64_t{2});
       return model;
     }},
    {"rows behind time, for a recurrent layer",
     {5, 3},
     [](int64_t) {
       ModelBuilder model(13);
       add_recurrent_weights(model);
       set(model.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0, 2});
       set(model.node("GRU", {"t", "w", "r"}, {"g", "last"}), "hidden_size", int64_t{4});
       model.integers("one", {1}).integers("first", {0});
       model.node("Squeeze", {"g", "one"}, {"s"});
       set(model.node("Transpose", {"s"}, {"back"}), "perm", std::vector<int64_t>{1, 0, 2});
       model.node("Squeeze", {"last", "first"}, {"l"});
       model.node("Unsqueeze", {"l", "one"}, {"u"});
       model.node("Mul", {"back", "u"}, {"y"});
       return model;
     }},
    {"products, sums and norms of rows on axis 1",
     {5, 4},
     [](int64_t) {
       ModelBuilder model;
       model.floats("w", {4, 6}, numbers(24, 7)).floats("b", {5, 1, 6}, numbers(30, 8));
       set(model.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0, 2});
       model.node("MatMul", {"t", "w"}, {"m"});
       model.node("Add", {"m", "b"}, {"a"});
       set(model.node("Softmax", {"a"}, {"p"}), "axis", int64_t{0});
       set(model.node("Concat", {"a", "p"}, {"c"}), "axis", int64_t{0});
       set(model.node("ReduceMax", {"c"}, {"h"}), "axes", std::vector<int64_t>{2});
       set(model.node("Transpose", {"h"}, {"y"}), "perm", std::vector<int64_t>{1, 0, 2});
       return model;
     }},
    {"a slice that ends where the shape does",
     {6, 4},
     [](int64_t) {
       ModelBuilder model;
       model.integers("starts", {0, 2}).integers("axes", {0, 1}).integers("first", {0});
       model.integers("five", {5});
       model.node("Shape", {"x"}, {"s"});
       model.node("Gather", {"s", "first"}, {"n"});
       set(model.node("Concat", {"n", "five"}, {"ends"}), "axis", int64_t{0});
       model.node("Slice", {"x", "starts", "ends", "axes"}, {"c"});
       model.node("Tanh", {"c"}, {"y"});
       return model;
     }},
};

// One token before those of each row, which the model has once.
const FixedModel kClassToken = {
    "a class token", {3, 4}, [](int64_t) {
      ModelBuilder model;
      model.floats("token", {1, 1, 4}, numbers(4, 5)).floats("places", {1, 4, 4}, numbers(16, 6));
      set(model.node("Concat", {"token", "x"}, {"c"}), "axis", int64_t{1});
      model.node("Add", {"c", "places"}, {"y"});
      return model;
    }};

// The same where time comes first.
const FixedModel kTokenOfTime = {
    "a token before all times", {3, 4}, [](int64_t) {
      ModelBuilder model;
      model.floats("token", {1, 1, 4}, numbers(4, 5));
      set(model.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0, 2});
      set(model.node("Concat", {"token", "t"}, {"c"}), "axis", int64_t{0});
      set(model.node("Transpose", {"c"}, {"y"}), "perm", std::vector<int64_t>{1, 0, 2});
      return model;
    }};

// A state of one row and its length, which the model has once.
const FixedModel kInitialState = {
    "an initial state", {5, 3}, [](int64_t) {
      ModelBuilder model(14);
      add_recurrent_weights(model);
      model.floats("h", {1, 1, 4}, numbers(4, 9)).integers("one", {1});
      model.add_tensor("length", {1}, anneal_onnx::TensorProto::INT32)->add_int32_data(4);
      auto& gru = model.node("GRU", {"x", "w", "r", "", "length", "state"}, {"g"});
      set(model.node("Transpose", {"h"}, {"state"}), "perm", std::vector<int64_t>{1, 0, 2});
      set(gru, "hidden_size", int64_t{4});
      set(gru, "layout", int64_t{1});
      model.integers("axis", {2});
      model.node("Squeeze", {"g", "axis"}, {"y"});
      return model;
    }};

BuildOptions opened(const FixedModel& model, int64_t best, const std::string& target) {
  BuildOptions options;
  options.targets = {target};
  options.profiles = {{.min = {{"x", model.dims(1)}},
                       .opt = {{"x", model.dims(best)}},
                       .max = {{"x", model.dims(9)}}}};
  return options;
}

std::shared_ptr<const Engine> built(const FixedModel& model, int64_t batch,
                                    const BuildOptions& options) {
  const auto bytes = model.bytes(batch);
  return Engine::load(build_engine(OnnxModel(bytes), options).bytes, nullptr,
                      {.device = options.targets[0]});
}

std::vector<float> result(const std::shared_ptr<const Engine>& engine, const Tensor& x) {
  ExecutionContext context(engine, {.threads = 2});
  return run(context, *engine, {x}).at("y");
}

// Rows first to last - 1.
Tensor rows_of(const Tensor& x, int64_t first, int64_t last) {
  const int64_t row = count(x.dims()) / x.dims()[0];
  Dims dims = x.dims();
  dims[0] = last - first;
  const auto values = x.as<float>();
  return Tensor::of<float>(
      DataType::kF32, dims,
      std::vector<float>(values.begin() + first * row, values.begin() + last * row));
}

void expect_rows_apart(const FixedModel& model, int64_t batch, const std::string& target) {
  SCOPED_TRACE(fmt::format("{}, {} rows in the model, {}", model.what, batch, target));
  BuildOptions fixed;
  fixed.targets = {target};
  const auto as_given = built(model, batch, fixed);
  const auto open = built(model, batch, opened(model, batch, target));
  const Tensor x = random_f32(model.dims(7), 11);
  const Tensor own = rows_of(x, 0, batch);
  EXPECT_EQ(result(open, own), result(as_given, own));
  std::vector<float> one_by_one;
  for (int64_t row = 0; row < 7; ++row)
    for (const float value : result(open, rows_of(x, row, row + 1))) one_by_one.push_back(value);
  EXPECT_EQ(result(open, x), one_by_one);
}

TEST(OpenBatch, EachRowHasItsResult) {
  for (const FixedModel& model : kOpened) {
    for (const int64_t batch : {1, 4}) expect_rows_apart(model, batch, "cpu");
    expect_rows_apart(model, 1, "emulated");
  }
  for (const std::string target : {"cpu", "emulated"})
    for (const FixedModel* model : {&kClassToken, &kTokenOfTime, &kInitialState})
      expect_rows_apart(*model, 1, target);
}

TEST(OpenBatch, IsFixedAtAnotherSize) {
  for (const FixedModel& model : kOpened) {
    SCOPED_TRACE(model.what);
    BuildOptions options;
    options.profiles = {{.opt = {{"x", model.dims(6)}}}};
    const auto six = built(model, 1, options);
    EXPECT_EQ(six->inputs()[0].dims, model.dims(6));
    const Tensor x = random_f32(model.dims(6), 12);
    EXPECT_EQ(result(six, x), result(built(model, 1, opened(model, 1, "cpu")), x));
  }
}

// Each has a node named "fault" that fixes the batch or mixes its rows.
struct Refused {
  const char* what;
  int64_t batch;
  std::function<void(ModelBuilder&)> add;
  const char* says;
};

const Refused kRefused[] = {
    {"the batch is removed", 1,
     [](ModelBuilder& model) {
       model.integers("axes", {0});
       model.node("Squeeze", {"x", "axes"}, {"y"}, "fault");
     },
     "fault"},
    {"all rows become one", 1,
     [](ModelBuilder& model) {
       model.integers("sizes", {24});
       model.node("Reshape", {"x", "sizes"}, {"y"}, "fault");
     },
     "fault"},
    {"a first size that is not the batch", 1,
     [](ModelBuilder& model) {
       model.integers("sizes", {2, -1});
       model.node("Reshape", {"x", "sizes"}, {"y"}, "fault");
     },
     "fault"},
    {"the rows are on another axis", 1,
     [](ModelBuilder& model) {
       set(model.node("Transpose", {"x"}, {"t"}, "fault"), "perm", std::vector<int64_t>{1, 0, 2});
       model.integers("sizes", {1, 24});
       model.node("Reshape", {"t", "sizes"}, {"y"}, "reshape");
     },
     "reshape"},
    {"a mean of all rows", 1,
     [](ModelBuilder& model) {
       set(model.node("ReduceMean", {"x"}, {"m"}, "fault"), "axes", std::vector<int64_t>{0});
       model.node("Sub", {"x", "m"}, {"y"}, "sub");
     },
     "\"fault\" (Reduce)"},
    {"a softmax over rows", 1,
     [](ModelBuilder& model) {
       set(model.node("Softmax", {"x"}, {"y"}, "fault"), "axis", int64_t{0});
     },
     "fault"},
    {"sums over rows", 1,
     [](ModelBuilder& model) {
       model.add_tensor("axis", {}, anneal_onnx::TensorProto::INT64)->add_int64_data(0);
       model.node("CumSum", {"x", "axis"}, {"y"}, "fault");
     },
     "fault"},
    {"more rows than the batch", 1,
     [](ModelBuilder& model) {
       set(model.node("Concat", {"x", "x"}, {"y"}, "fault"), "axis", int64_t{0});
     },
     "\"fault\" (Concat)"},
    {"a product of rows with each other", 1,
     [](ModelBuilder& model) {
       model.integers("sizes", {1, 24});
       model.node("Reshape", {"x", "sizes"}, {"r"});
       set(model.node("Transpose", {"r"}, {"t"}), "perm", std::vector<int64_t>{1, 0});
       model.node("MatMul", {"r", "t"}, {"y"}, "fault");
     },
     "no axis of value \"y\""},
    {"a number for each row", 4,
     [](ModelBuilder& model) {
       model.floats("c", {4, 1, 1}, {1, 2, 3, 4});
       model.node("Add", {"x", "c"}, {"y"}, "fault");
     },
     "fault"},
    {"rows in reverse order", 1,
     [](ModelBuilder& model) {
       model.integers("starts", {-1}).integers("axes", {0}).integers("steps", {-1});
       model.integers("ends", {std::numeric_limits<int64_t>::min()});
       model.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"}, "fault");
     },
     "\"fault\" (Slice) mixes rows"},
    {"rows that follow each other in time", 1,
     [](ModelBuilder& model) {
       model.floats("w", {1, 3, 4}, numbers(12, 1)).floats("r", {1, 3, 3}, numbers(9, 2));
       auto& rnn = model.node("RNN", {"x", "w", "r"}, {"y"}, "fault");
       set(rnn, "hidden_size", int64_t{3});
     },
     "fault"},
    {"a softmax over rows on another axis", 1,
     [](ModelBuilder& model) {
       set(model.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0, 2});
       set(model.node("Softmax", {"t"}, {"y"}, "fault"), "axis", int64_t{1});
     },
     "fault"},
    {"a reshape that mixes rows on another axis", 1,
     [](ModelBuilder& model) {
       set(model.node("Transpose", {"x"}, {"t"}), "perm", std::vector<int64_t>{1, 0, 2});
       model.integers("sizes", {3, -1, 8});
       model.node("Reshape", {"t", "sizes"}, {"y"}, "fault");
     },
     "fault"},
    {"rows that move by one", 1,
     [](ModelBuilder& model) {
       model.integers("pads", {1, 0, 0, -1, 0, 0});
       model.node("Pad", {"x", "pads"}, {"y"}, "fault");
     },
     "\"fault\" (Pad) mixes rows"},
    {"zeros as many as rows", 1,
     [](ModelBuilder& model) {
       model.floats("c", {4}, {1, 2, 3, 4}).integers("first", {0}).integers("minus", {-1});
       model.node("Shape", {"x"}, {"s"});
       model.node("Gather", {"s", "first"}, {"n"});
       model.node("Mul", {"n", "minus"}, {"less"});
       set(model.node("Concat", {"n", "less"}, {"pads"}), "axis", int64_t{0});
       model.node("Pad", {"c", "pads"}, {"p"}, "fault");
       model.node("Add", {"x", "p"}, {"y"});
     },
     "\"fault\" (Pad) mixes rows"},
    {"a result without rows", 1,
     [](ModelBuilder& model) {
       set(model.node("ReduceSum", {"x"}, {"y"}, "fault"), "keepdims", int64_t{0});
     },
     "\"fault\" (Reduce)"},
};

TEST(OpenBatch, RefusesWhatFixesOrMixesRows) {
  for (const Refused& refused : kRefused) {
    SCOPED_TRACE(refused.what);
    ModelBuilder model;
    const std::string batch = std::to_string(refused.batch);
    model.input("x", {batch, "6", "4"}).output("y");
    refused.add(model);
    const auto bytes = model.bytes();
    EXPECT_NO_THROW(build_engine(OnnxModel(bytes)));
    BuildOptions options;
    options.profiles = {{.opt = {{"x", {3, 6, 4}}}}};
    EXPECT_THAT(error_of([&] { build_engine(OnnxModel(bytes), options); }),
                AllOf(HasSubstr("while opening the batch of \"x\", which is " + batch),
                      HasSubstr(refused.says), HasSubstr("build it with that size")));
  }
}

TEST(OpenBatch, InputsShareIt) {
  ModelBuilder model;
  model.input("x", {"1", "4"}).input("z", {"1", "4"}).input("all", {"1", "4"}).output("y");
  model.node("Add", {"x", "z"}, {"s"});
  model.node("Mul", {"s", "all"}, {"y"});
  const auto bytes = model.bytes();
  BuildOptions options;
  const auto error = [&] { return error_of([&] { build_engine(OnnxModel(bytes), options); }); };
  options.profiles = {{.opt = {{"x", {3, 4}}, {"z", {5, 4}}}}};
  EXPECT_THAT(error(), HasSubstr("share one batch"));
  options.profiles = {{.opt = {{"x", {3, 8}}}}};
  EXPECT_THAT(error(), HasSubstr("only axis 0, the batch, can be opened"));
  options.profiles = {{.opt = {{"x", {0, 4}}}}};
  EXPECT_THAT(error(), HasSubstr("a batch of 0 rows"));
  // An input that is not opened has one row for all.
  options.profiles = {{.opt = {{"x", {3, 4}}, {"z", {3, 4}}}}};
  const auto engine = Engine::load(build_engine(OnnxModel(bytes), options).bytes, nullptr);
  EXPECT_EQ(engine->inputs()[2].dims, (Dims{1, 4}));
  const Tensor x = random_f32({3, 4}, 1), z = random_f32({3, 4}, 2), all = random_f32({1, 4}, 3);
  ExecutionContext context(engine, {.threads = 1});
  const std::vector<float> y = run(context, *engine, {x, z, all}).at("y");
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y[i], (x.as<float>()[i] + z.as<float>()[i]) * all.as<float>()[i % 4]);
}

TEST(OpenBatch, IsOpenAgainAfterARefit) {
  const FixedModel& model = kOpened[0];
  const auto bytes = model.bytes(1);
  const BuiltEngine first = build_engine(OnnxModel(bytes), opened(model, 2, "cpu"));
  const BuiltEngine again = refit_engine(first.bytes, OnnxModel(bytes));
  const Tensor x = random_f32(model.dims(5), 13);
  EXPECT_EQ(result(Engine::load(again.bytes, nullptr), x),
            result(Engine::load(first.bytes, nullptr), x));
}

}  // namespace
}  // namespace anneal::testing
