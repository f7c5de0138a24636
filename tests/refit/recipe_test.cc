// Recipes: what they keep, and damaged ones.
#include "anneal/engine/onnx/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "anneal/engine/plan.h"
#include "anneal/tests/error_of.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Recipe full_recipe() {
  Recipe recipe;
  BuildOptions& options = recipe.options;
  options.targets = {"cpu:avx2", "sm_90"};
  options.profiles = {
      {.min = {{"x", {1, 3}}}, .opt = {{"x", {4, 3}}}, .max = {{"x", {8, 3}}, {"y\"\n", {}}}}};
  options.default_inputs = {"state"};
  options.states = {{"past.*", "present.*"}, {"h", "next"}};
  options.precision.types = {Precision::kBF16, Precision::kI8};
  options.precision.symmetric = true;
  options.precision.max_layer_error = 0.1F;
  options.precision.weight_format = "int8:64";
  options.precision.layers = {{"conv[0-9]+", Precision::kF32}, {".*", Precision::kF16}};
  CalibrationTable table;
  table.model = "net";
  table.fingerprint = 77;
  table.tensors["x"] = {-1.1F, 2, -3, 4, "mse"};
  table.biases["conv1"] = {0.5F, -0.25F};
  options.precision.ranges = table;
  options.exact = true;
  options.tf32 = true;
  options.skip_passes = {"a"};
  options.only_passes = {"b"};
  options.skip_kernels = {"c"};
  options.allow_fallback = false;
  options.max_memory = ~uint64_t{0};
  options.pack_weights = true;
  recipe.back_to_f32 = {{"conv1", "is not finite"}};
  recipe.fingerprint = ~uint64_t{0};
  return recipe;
}

TEST(Recipes, KeepEverything) {
  const Recipe recipe = full_recipe();
  const std::string text = to_string(recipe);
  const Recipe read = parse_recipe(text);
  EXPECT_EQ(to_string(read), text);
  EXPECT_EQ(read.options.targets, recipe.options.targets);
  EXPECT_EQ(read.options.profiles[0].max, recipe.options.profiles[0].max);
  EXPECT_EQ(read.options.precision.max_layer_error, 0.1F);
  EXPECT_EQ(read.options.precision.weight_format, "int8:64");
  EXPECT_EQ(*read.options.precision.ranges, *recipe.options.precision.ranges);
  EXPECT_EQ(read.options.max_memory, recipe.options.max_memory);
  EXPECT_TRUE(read.options.tf32);
  // Files of builds that did not know it.
  const std::string key = "\"tf32\":true,";
  std::string older = text;
  older.erase(older.find(key), key.size());
  EXPECT_FALSE(parse_recipe(older).options.tf32);
  EXPECT_EQ(read.fingerprint, recipe.fingerprint);
  EXPECT_EQ(read.options.precision.layers[1].precision, Precision::kF16);
}

TEST(Recipes, AnInfiniteErrorStays) {
  Recipe recipe = full_recipe();
  recipe.options.precision.max_layer_error = std::numeric_limits<float>::infinity();
  EXPECT_EQ(parse_recipe(to_string(recipe)).options.precision.max_layer_error,
            std::numeric_limits<float>::infinity());
}

// Each byte of a recipe in turn is another one.
TEST(Recipes, DamagedOnesAreRefusedOrRead) {
  const std::string text = to_string(full_recipe());
  for (size_t i = 0; i < text.size(); ++i)
    for (const char other : {'\0', '9', '"', '{', '\xff'}) {
      std::string damaged = text;
      damaged[i] = other;
      const std::string error = error_of([&] { static_cast<void>(parse_recipe(damaged)); });
      if (!error.empty()) {
        EXPECT_THAT(error, AllOf(StartsWith("incompatible_plan"), HasSubstr("recipe is damaged")));
      }
    }
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_recipe(text.substr(0, size))); }),
                StartsWith("incompatible_plan"));
  EXPECT_THAT(error_of([&] { static_cast<void>(parse_recipe(std::string(100000, '['))); }),
              StartsWith("incompatible_plan"));
  for (const std::string other : {"true", "1e300", "1.5", "-1"}) {
    std::string damaged = text;
    const std::string key = "\"max_memory\":";
    const size_t begin = damaged.find(key) + key.size();
    damaged.replace(begin, damaged.find(',', begin) - begin, other);
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_recipe(damaged)); }),
                HasSubstr("is no whole number"))
        << other;
  }
}

// Two ways to ask for the same engine give the same bytes, and no path or number of threads is in
// it.
TEST(Recipes, HoldNothingThatDiffersBetweenBuilds) {
  BuildOptions one, other;
  one.profiles = {{.max = {{"image", {8, 3, 12, 12}}}}};
  one.profiles[0].min = {{"image", {1, 3, 12, 12}}};
  one.threads = 1;
  other.profiles = {{.min = {{"", {1, 3, 12, 12}}}, .max = {{"", {8, 3, 12, 12}}}}};
  other.timing_cache = "/tmp/anneal_no_such_times";
  BuildOptions as_declared;
  as_declared.profiles = {{.opt = {{"image", {1, 3, 12, 12}}}}};
  EXPECT_TRUE(build_engine(model(1), as_declared).bytes == build_engine(model(1)).bytes);
  const NetworkForm form{.batch = "N"};
  const Bytes built = build_engine(model(1, form), one).bytes;
  other.timing_cache.clear();
  EXPECT_TRUE(built == build_engine(model(1, form), other).bytes);
  EXPECT_THAT(
      load_engine_file(built, nullptr).recipe,
      AllOf(HasSubstr("\"image\":[8,3,12,12]"), Not(HasSubstr("tmp")), Not(HasSubstr("threads"))));
}

}  // namespace
}  // namespace anneal::testing
