// Operators of ai.onnx.ml that prepare features, from ONNX to results.
#include "anneal/tests/engine/imported/ml_models.h"

namespace anneal::testing {
namespace {

using anneal_onnx::NodeProto;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Features, AreScaledNormalizedAndImputed) {
  const Tensor x = rows({{1, -2}, {0, 0}});
  EXPECT_THAT(numbers_of(run_node(
                  "Scaler", {x},
                  [](NodeProto& node) {
                    set_floats(node, "offset", {0.5f, 1}), set_floats(node, "scale", {2, -1});
                  })[0]),
              ElementsAre(1, 3, -1, 1));
  const auto norm = [&](const char* kind) {
    return numbers_of(
        run_node("Normalizer", {x}, [&](NodeProto& node) { set(node, "norm", kind); })[0]);
  };
  EXPECT_THAT(norm("MAX"), ElementsAre(1, -2, 0, 0));
  EXPECT_THAT(norm("L1"), near_all({1 / 3.0, -2 / 3.0, 0, 0}));
  EXPECT_THAT(norm("L2"), near_all({1 / std::sqrt(5), -2 / std::sqrt(5), 0, 0}));
  EXPECT_THAT(numbers_of(run_node("Imputer", {rows({{kNan, 1}, {2, kNan}})},
                                  [](NodeProto& node) {
                                    set(node, "replaced_value_float", kNan);
                                    set_floats(node, "imputed_value_floats", {7, 8});
                                  })[0]),
              ElementsAre(7, 1, 2, 8));
  EXPECT_THAT(integers_of(run_node("Imputer", {integers({1, 2, 1})},
                                   [](NodeProto& node) {
                                     set(node, "replaced_value_int64", int64_t{1});
                                     set(node, "imputed_value_int64s", std::vector<int64_t>{9});
                                   })[0]),
              ElementsAre(9, 2, 9));
  // Beyond what f64 holds exactly.
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  EXPECT_THAT(integers_of(run_node("Imputer", {integers({kOdd, kOdd - 1})},
                                   [](NodeProto& node) {
                                     set(node, "replaced_value_int64", kOdd);
                                     set(node, "imputed_value_int64s", std::vector<int64_t>{7});
                                   })[0]),
              ElementsAre(7, kOdd - 1));
  EXPECT_THAT(error_of([&] {
                run_node("Scaler", {x}, [](NodeProto& node) {
                  set_floats(node, "offset", {0, 1}), set_floats(node, "scale", {2});
                });
              }),
              HasSubstr("the same number of values"));
  EXPECT_THAT(numbers_of(run_node("Binarizer", {x},
                                  [](NodeProto& node) { set(node, "threshold", 0.5f); })[0]),
              ElementsAre(1, 0, 0, 0));
  const auto taken =
      run_node("ArrayFeatureExtractor",
               {x, Tensor::of<int64_t>(DataType::kI64, {1, 3}, {{1, 0, 1}})}, [](NodeProto&) {});
  EXPECT_THAT(numbers_of(taken[0]), ElementsAre(-2, 1, -2, 0, 0, 0));
  const auto joined = run_node("FeatureVectorizer", {x, integers({5, 6})}, [](NodeProto& node) {
    set(node, "inputdimensions", {{2, 1}});
  });
  EXPECT_THAT(numbers_of(joined[0]), ElementsAre(1, -2, 5, 0, 0, 6));
}

TEST(Features, AreEncoded) {
  const auto encode = [](const Tensor& x, bool zeros) {
    return run_node("OneHotEncoder", {x}, [&](NodeProto& node) {
      set(node, "cats_int64s", {{3, 5}}), set(node, "zeros", int64_t{zeros});
    });
  };
  const auto hot = encode(integers({5, 4, 3}), true);
  EXPECT_EQ(hot[0].dims(), (Dims{3, 1, 2}));
  EXPECT_THAT(numbers_of(hot[0]), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(numbers_of(encode(integers({5, 3}), false)[0]), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(error_of([&] { encode(integers({5, 4}), false); }), HasSubstr("condition"));
  EXPECT_THAT(numbers_of(run_node("OneHotEncoder", {rows({{kNan, 0}})},
                                  [](NodeProto& node) {
                                    set(node, "cats_int64s", {{0, 5}});
                                  })[0]),
              ElementsAre(0, 0, 1, 0));
  // By a table, and by comparing with each of keys that lie far apart.
  for (const int64_t last : {int64_t{7}, int64_t{1} << 40})
    EXPECT_THAT(integers_of(run_node(
                    "LabelEncoder", {integers({last, -3, 5, 2, last + 1, -4})},
                    [&](NodeProto& node) {
                      set(node, "keys_int64s", {{5, -3, last, 5}});
                      set(node, "values_int64s", {{10, 20, 30, 40}});
                      set(node, "default_int64", int64_t{-9});
                    },
                    1, 2)[0]),
                ElementsAre(30, 20, 10, -9, -9, -9));
  const auto label = [](int version) {
    return numbers_of(run_node(
        "LabelEncoder", {rows({{2}, {kNan}, {7}, {2.5}})},
        [](NodeProto& node) {
          set_floats(node, "keys_floats", {7, kNan, 2}),
              set_floats(node, "values_floats", {1, 2, 3});
          set(node, "default_float", -1.0f);
        },
        1, version)[0]);
  };
  EXPECT_THAT(label(2), ElementsAre(3, -1, 1, -1));
  EXPECT_THAT(label(4), ElementsAre(3, 2, 1, -1));
}

// The map of each row is given as the scores themselves.
TEST(Features, ZipMapGivesItsInput) {
  const Tensor x = rows({{0.25, 0.75}});
  const auto y = run_node("ZipMap", {x}, [](NodeProto& node) {
    set_texts(node, "classlabels_strings", {"a", "b"});
  });
  EXPECT_THAT(numbers_of(y[0]), ElementsAre(0.25, 0.75));
}

}  // namespace
}  // namespace anneal::testing
