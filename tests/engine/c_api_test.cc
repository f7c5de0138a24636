// The C interface gives what the C++ one gives, and no exception leaves it.
#include "anneal/engine/run/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstring>

#include <filesystem>

#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("anneal_c_api_test" + std::to_string(getpid()) + ".engine");
    write_engine_file(path_, build_text(kDynamicNet));
    ASSERT_EQ(anneal_engine_load(path_.c_str(), nullptr, &engine_, &error_), ANNEAL_OK)
        << error_.text;
    ASSERT_EQ(anneal_context_make(engine_, 1, &context_, &error_), ANNEAL_OK) << error_.text;
  }
  void TearDown() override {
    anneal_context_free(context_);
    anneal_engine_free(engine_);
    std::filesystem::remove(path_);
  }
  anneal_tensor tensor(std::vector<float>& values, std::vector<int64_t> dims) {
    anneal_tensor result{ANNEAL_F32, static_cast<int32_t>(dims.size()), {}, {}, values.data()};
    int64_t stride = 1;
    for (size_t axis = dims.size(); axis-- > 0; stride *= dims[axis]) {
      result.dims[axis] = dims[axis];
      result.strides[axis] = stride;
    }
    return result;
  }

  std::filesystem::path path_;
  anneal_engine* engine_ = nullptr;
  anneal_context* context_ = nullptr;
  anneal_error error_{};
};

TEST_F(CApi, ContextsAreMadeWithOptions) {
  anneal_context* context = nullptr;
  anneal_context_options options = {};
  EXPECT_EQ(anneal_context_make_with(engine_, &options, &context, &error_),
            ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text,
               "options are not of this version: set size to sizeof(anneal_context_options)");
  options = {.size = sizeof(options),
             .threads = 1,
             .synchronous_steps = 1,
             .memory_limit = 1 << 20,
             .spin = 0};
  EXPECT_EQ(anneal_context_make_with(engine_, &options, &context, &error_), ANNEAL_OK)
      << error_.text;
  anneal_context_free(context);
  options.spin = 1;
  for (const size_t size : {offsetof(anneal_context_options, spin), sizeof(options)}) {
    options.size = size;
    EXPECT_EQ(anneal_context_make_with(engine_, &options, &context, &error_), ANNEAL_OK)
        << error_.text;
    anneal_context_free(context);
  }
  options.size = sizeof(options) + 8;
  EXPECT_EQ(anneal_context_make_with(engine_, &options, &context, &error_),
            ANNEAL_INVALID_ARGUMENT);
  anneal_engine* other = nullptr;
  EXPECT_EQ(anneal_engine_load(path_.c_str(), "gpu", &other, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error_.text).find("\"gpu\" is no device: use auto, cpu,"),
            std::string::npos);
  EXPECT_EQ(anneal_engine_load(path_.c_str(), "auto", &other, &error_), ANNEAL_OK) << error_.text;
  anneal_engine_free(other);
}

TEST_F(CApi, RunsAnEngine) {
  ASSERT_EQ(anneal_engine_input_count(engine_), 2);
  ASSERT_EQ(anneal_engine_output_count(engine_), 2);
  EXPECT_STREQ(anneal_engine_input(engine_, 1).name, "z");
  EXPECT_EQ(anneal_engine_input(engine_, 1).dims[0], -1);
  EXPECT_EQ(anneal_engine_output(engine_, 0).rank, 2);

  const Tensor x = random_f32({3, 6}, 1), z = random_f32({3, 6}, 2);
  std::vector<float> xs(x.as<float>().begin(), x.as<float>().end()),
      zs(z.as<float>().begin(), z.as<float>().end());
  const anneal_tensor a = tensor(xs, {3, 6}), b = tensor(zs, {3, 6});
  ASSERT_EQ(anneal_context_set_input(context_, "x", &a, &error_), ANNEAL_OK) << error_.text;
  ASSERT_EQ(anneal_context_set_input(context_, "z", &b, &error_), ANNEAL_OK) << error_.text;
  std::vector<float> rows(18);
  const anneal_tensor out = tensor(rows, {6, 3});
  ASSERT_EQ(anneal_context_set_output(context_, "rows", &out, &error_), ANNEAL_OK) << error_.text;
  ASSERT_EQ(anneal_context_run(context_, &error_), ANNEAL_OK) << error_.text;
  anneal_tensor y{};
  ASSERT_EQ(anneal_context_output(context_, "y", &y, &error_), ANNEAL_OK) << error_.text;
  EXPECT_EQ(y.dims[0], 6);
  EXPECT_EQ(y.strides[0], 5);

  const auto want = reference(kDynamicNet, {x, z});
  for (size_t i = 0; i < 30; ++i)
    EXPECT_NEAR(static_cast<float*>(y.data)[i], want.at("y")[i], 1e-4);
  EXPECT_EQ(rows, want.at("rows"));
}

TEST_F(CApi, PreparesShapes) {
  anneal_input_shape shapes[2] = {{"x", 2, {9, 6}}, {"z", 2, {9, 6}}};
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 2, &error_), ANNEAL_OK) << error_.text;
  shapes[1].dims[0] = 8;
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 2, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.text, HasSubstr("N is 8 here, but 9 in input \"x\""));
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 1, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.text, HasSubstr("no shape is given for input \"z\""));
  shapes[0].rank = 9;
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 1, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(anneal_context_prepare(context_, nullptr, 1, &error_), ANNEAL_INVALID_ARGUMENT);
}

TEST_F(CApi, ErrorsAreCodesAndSentences) {
  std::vector<float> values(18);
  const anneal_tensor good = tensor(values, {3, 6});
  anneal_tensor wrong = good;
  wrong.rank = 9;
  EXPECT_EQ(anneal_context_set_input(context_, "w", &good, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.text, HasSubstr("there is no input \"w\""));
  EXPECT_EQ(anneal_context_set_input(context_, "x", &wrong, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(anneal_context_set_input(context_, nullptr, &good, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.text, HasSubstr("name is null"));
  EXPECT_EQ(anneal_context_run(context_, nullptr), ANNEAL_INVALID_ARGUMENT);
  anneal_engine* none = nullptr;
  EXPECT_EQ(anneal_engine_load("/does/not/exist", nullptr, &none, &error_), ANNEAL_IO);
  EXPECT_EQ(error_.code, ANNEAL_IO);
  EXPECT_EQ(anneal_engine_load(path_.c_str(), "toaster", &none, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  anneal_engine_free(nullptr);
  anneal_context_free(nullptr);
  EXPECT_STREQ(anneal_version(), "0.1.0");
}

}  // namespace
}  // namespace anneal::testing
