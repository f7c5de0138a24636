// Memory that runs out is an Error at the public functions for samples, metrics and frontiers, too.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "anneal/core/fail.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/onnx/recipe.h"
#include "anneal/tests/engine/expect_out_of_memory.h"

// Of a leak sanitizer, if the program has one.
extern "C" void __lsan_disable() __attribute__((weak));
extern "C" void __lsan_enable() __attribute__((weak));

namespace anneal::testing {
namespace {

// Protobuf and nlohmann-json lose memory if an allocation within a constructor fails.
class LeaksOfLibraries {
 public:
  LeaksOfLibraries() {
    if (__lsan_disable) __lsan_disable();
  }
  ~LeaksOfLibraries() {
    if (__lsan_enable) __lsan_enable();
  }
  LeaksOfLibraries(const LeaksOfLibraries&) = delete;
  LeaksOfLibraries& operator=(const LeaksOfLibraries&) = delete;
};

TEST(OutOfMemory, IsAnErrorOfFunctionsForSamplesAndMetrics) {
  const auto read = [](int64_t) {
    const float one[] = {1};
    return std::vector<SampleTensor>{{"x", Tensor::of<float>(DataType::kF32, {1}, one)}};
  };
  expect_errors("make_dataset", [&] { make_dataset(100, read); });
  const auto samples = make_dataset(100, read);
  expect_errors("subset", [&] { subset(samples, "hash:50,first:20"); });
  const std::string output(100, 'y');
  expect_errors("make_metric", [&] { make_metric("top1", output); });
  expect_errors("mean_metric", [&] { mean_metric("mean", "", [](auto&) { return 1.; }); });
  expect_errors("command_metric", [&] { command_metric("true"); });
  const std::vector<SampleScore> scores(20, {0.5});
  const auto metric = mean_metric("mean", "", [](auto&) { return 1.; });
  expect_errors("drop_of", [&] { drop_of(*metric, scores, scores); });
}

TEST(OutOfMemory, IsAnErrorOfTexts) {
  CalibrationTable table;
  table.model = "a model with a name of some length";
  for (const char* name : {"x", "a tensor with a name of some length"})
    table.tensors[name] = {.min = -1, .max = 1};
  const std::string text = to_string(table);
  expect_errors("to_string of a table", [&] { to_string(table); });
  expect_errors("parse_calibration_table", [&] { parse_calibration_table(text); });
  Frontier frontier;
  frontier.model = table.model;
  PrecisionGroup group;
  group.name = "a group with a name of some length";
  frontier.groups = {group};
  FrontierPoint point;
  point.name = "a point with a name of some length";
  point.precisions = {Precision::kF16};
  frontier.points = {point};
  for (const auto form : {FrontierForm::kTable, FrontierForm::kCsv, FrontierForm::kSvg})
    expect_errors("to_string of a frontier", [&] { to_string(frontier, form); });
  {
    const LeaksOfLibraries ignored;
    expect_errors("to_string as JSON", [&] { to_string(frontier, FrontierForm::kJson); });
  }
  expect_errors("summarize", [&] { summarize(frontier); });
  expect_errors("precision_of", [&] { precision_of(frontier, frontier.points[0]); });
  const std::string json = to_string(frontier, FrontierForm::kJson);
  expect_errors("parse_frontier", [&] { parse_frontier(json); });
}

// The destructor of nlohmann's JSON allocates: cmake/json_header.cmake.
TEST(OutOfMemory, IsAnErrorOfFunctionsForJson) {
  const LeaksOfLibraries ignored;
  expect_errors("parse_data_format", [&] {
    parse_data_format(
        R"({"resize": "256", "mean": [0.485, 0.456, 0.406], "labels": "labels.csv"})");
  });
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("anneal_memory_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "dataset.json") << R"({"crop": 224, "std": [0.229, 0.224, 0.225]})";
  const std::string path = folder.string(), model = "samples/glyphs/glyphs.onnx";
  expect_errors("find_data_format", [&] { find_data_format(path); });
  std::filesystem::remove_all(folder);
  expect_errors("inspect_file", [&] { inspect_file(model); });

  Recipe recipe;
  recipe.options.targets = {"cpu", "a target with a name of some length"};
  recipe.options.profiles = {{{{"x", {1, 3}}}, {{"x", {2, 3}}}, {{"x", {8, 3}}}}};
  recipe.back_to_f32 = {{"a layer with a name of some length", "it overflows in f16"}};
  const std::string text = to_string(recipe);
  expect_errors("to_string of a recipe", [&] { at_entry([&] { return to_string(recipe); }); });
  expect_errors("parse_recipe", [&] { at_entry([&] { return parse_recipe(text); }); });
}

}  // namespace
}  // namespace anneal::testing
