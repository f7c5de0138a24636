// Sizes of inputs that a model leaves open: fixed where an operator requires one value, and
// optimized for values that the layers accept.
#include <gmock/gmock.h>

#include <map>

#include "anneal/graph/graph.h"
#include "anneal/importer/importer.h"
#include "anneal/tests/importer/model_builder.h"

namespace anneal {
namespace {

using testing::HasSubstr;

using Best = std::map<std::string, int64_t>;

Graph imported(ModelBuilder& model, const ImportOptions& options = {}) {
  Graph graph = import_bytes(model.bytes(), "", options).graph;
  verify(graph);
  return graph;
}

Best best_of(const Graph& graph) {
  Best best;
  const auto of_inputs = graph.symbols_of_inputs();
  for (size_t i = 0; i < of_inputs.size(); ++i)
    if (of_inputs[i]) best[graph.sizes().symbols()[i].name] = graph.sizes().symbols()[i].bounds.opt;
  return best;
}

std::string input_text(const Graph& graph, size_t index = 0) {
  return graph.sizes().text(graph.value(graph.inputs()[index]).type().shape);
}

// y = Conv(x) with weights [1, 2, kernel, 1].
ModelBuilder conv(const std::vector<std::string>& dims, int64_t kernel) {
  ModelBuilder model;
  model.input("x", dims).output("y");
  model.floats("w", {1, 2, kernel, 1}, std::vector<float>(static_cast<size_t>(2 * kernel)));
  model.node("Conv", {"x", "w"}, {"y"}, "conv");
  return model;
}

TEST(BestSizes, GrowUntilNoResultIsEmpty) {
  ModelBuilder model = conv({"N", "2", "H", "W"}, 7);
  EXPECT_EQ(best_of(imported(model)), (Best{{"N", 1}, {"H", 8}, {"W", 1}}));
}

TEST(BestSizes, GrowUntilShapesAgree) {
  ModelBuilder model;  // halved and doubled again, H and W are what they were if they are even
  model.input("x", {"N", "1", "H", "W"}).output("y").floats("scales", {4}, {1, 1, 2, 2});
  auto& pool = model.node("MaxPool", {"x"}, {"half"});
  set(pool, "kernel_shape", std::vector<int64_t>{1, 1});
  set(pool, "strides", std::vector<int64_t>{2, 2});
  model.node("Resize", {"half", "", "scales"}, {"again"});
  set(model.node("Concat", {"x", "again"}, {"y"}), "axis", int64_t{1});
  EXPECT_EQ(best_of(imported(model)), (Best{{"N", 1}, {"H", 2}, {"W", 2}}));
}

TEST(BestSizes, SizesThatMustBeEqualGrowNoMoreThanNeeded) {
  ModelBuilder model = conv({"N", "2", "H", "1"}, 5);
  model.input("b", {"M", "1", "1", "1"}).output("z");
  set(model.node("Concat", {"y", "b"}, {"both"}), "axis", int64_t{2});
  model.node("Abs", {"both"}, {"z"});
  EXPECT_EQ(best_of(imported(model)), (Best{{"N", 1}, {"H", 8}}));
}

TEST(BestSizes, StayWhereNothingHelps) {
  ModelBuilder model;
  model.input("x", {"N"}).input("short", {"M"}).output("y").output("z");
  model.integers("from", {5000}).integers("end", {9000}).integers("second", {2});
  model.node("Slice", {"x", "from", "end"}, {"y"});
  model.node("Slice", {"short", "second", "end"}, {"z"});
  EXPECT_EQ(best_of(imported(model)), (Best{{"N", 1}, {"M", 4}}));
}

TEST(BestSizes, ProfilesDecide) {
  ModelBuilder model = conv({"N", "2", "H", "W"}, 7);
  ImportOptions options;
  options.bounds["x"] = {{1, 2, 7, 1}, {3, 2, 9, 3}, {9, 2, 99, 9}};
  EXPECT_EQ(best_of(imported(model, options)), (Best{{"N", 3}, {"H", 9}, {"W", 3}}));
}

TEST(RequiredSizes, AreFixed) {
  ModelBuilder model = conv({"N", "C", "9", "W"}, 7);
  EXPECT_EQ(input_text(imported(model)), "[N,2,9,W]");

  ModelBuilder product;
  product.input("x", {"N", "T", "5"}).output("y");
  product.floats("w", {35, 2}, std::vector<float>(70));
  product.node("Flatten", {"x"}, {"flat"});
  product.node("MatMul", {"flat", "w"}, {"y"});
  EXPECT_EQ(input_text(imported(product)), "[N,7,5]");

  ModelBuilder recurrent;
  recurrent.input("x", {"T", "N", "I"}).output("y");
  recurrent.floats("w", {1, 2, 3}, std::vector<float>(6)).floats("r", {1, 2, 2}, {1, 2, 3, 4});
  set(recurrent.node("RNN", {"x", "w", "r"}, {"y"}), "hidden_size", int64_t{2});
  EXPECT_EQ(input_text(imported(recurrent)), "[T,N,3]");
}

TEST(RequiredSizes, AProfileThatExcludesThem) {
  ModelBuilder model = conv({"N", "C", "9", "1"}, 7);
  ImportOptions options;
  options.bounds["x"] = {{1, 3, 9, 1}, {1, 3, 9, 1}, {1, 4, 9, 1}};
  EXPECT_THAT(error_of([&] { imported(model, options); }),
              HasSubstr("layer \"conv\" (Conv): input channels C and 2 differ"));
}

TEST(RequiredSizes, TwoLayersThatDisagree) {
  ModelBuilder model = conv({"N", "C", "9", "1"}, 7);
  model.output("z").floats("v", {1, 3, 1, 1}, {1, 2, 3});
  model.node("Conv", {"x", "v"}, {"z"}, "other");
  EXPECT_THAT(
      error_of([&] { imported(model); }),
      HasSubstr("invalid_model: sizes C and 3 must be equal for \"other\" (Conv), but are 2 and 3: "
                "\"C\" is 2 for \"conv\" (Conv)"));
}

}  // namespace
}  // namespace anneal
