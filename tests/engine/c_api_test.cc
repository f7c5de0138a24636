// The C interface gives what the C++ one gives, and no exception leaves it.
#include "anneal/engine/run/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdlib>
#include <cstring>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

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
    ASSERT_EQ(anneal_context_make(engine_, nullptr, &context_, &error_), ANNEAL_OK) << error_.text;
  }
  void TearDown() override {
    anneal_context_free(context_);
    anneal_engine_free(engine_);
    std::filesystem::remove(path_);
  }
  anneal_tensor tensor(std::vector<float>& values, std::vector<int64_t> dims) {
    anneal_tensor result = {};
    result.dtype = ANNEAL_F32;
    result.rank = static_cast<int32_t>(dims.size());
    result.data = values.data();
    int64_t stride = 1;
    for (size_t axis = dims.size(); axis-- > 0; stride *= dims[axis]) {
      result.dims[axis] = dims[axis];
      result.strides[axis] = stride;
    }
    return result;
  }

  anneal_code load_on(const char* device, anneal_engine** engine) {
    anneal_engine_options options = {};
    options.size = sizeof(options);
    options.device = device;
    return anneal_engine_load(path_.c_str(), &options, engine, &error_);
  }

  std::filesystem::path path_;
  anneal_engine* engine_ = nullptr;
  anneal_context* context_ = nullptr;
  anneal_error error_{};
};

TEST_F(CApi, ContextsAreMadeWithOptions) {
  anneal_context* context = nullptr;
  anneal_context_options options = {};
  EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text,
               "options are not of this version: set size to sizeof(anneal_context_options)");
  options.size = sizeof(options);
  options.threads = 1;
  options.synchronous_steps = 1;
  options.max_memory = 1 << 20;
  options.shape_cache_size = 2;
  options.micro_batch = 1;
  EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK) << error_.text;
  anneal_context_free(context);
  options.spin = 1;
  for (const size_t size : {offsetof(anneal_context_options, spin), sizeof(options)}) {
    options.size = size;
    EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK) << error_.text;
    anneal_context_free(context);
  }
  options.size = sizeof(options) + 8;
  EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_INVALID_ARGUMENT);
  anneal_engine* other = nullptr;
  EXPECT_EQ(load_on("gpu", &other), ANNEAL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error_.text).find("\"gpu\" is no device: use auto, cpu,"),
            std::string::npos);
  EXPECT_EQ(load_on("auto", &other), ANNEAL_OK) << error_.text;
  anneal_engine_free(other);
}

TEST_F(CApi, RunsAnEngine) {
  ASSERT_EQ(anneal_engine_input_count(engine_), 2);
  ASSERT_EQ(anneal_engine_output_count(engine_), 2);
  EXPECT_STREQ(anneal_engine_input(engine_, 1).name, "z");
  EXPECT_EQ(anneal_engine_input(engine_, 1).dims[0], -1);
  EXPECT_EQ(anneal_engine_output(engine_, 0).rank, 2);
  const anneal_tensor_info z_info = anneal_engine_input(engine_, 1);
  EXPECT_STREQ(z_info.dim_names[0], "N");
  EXPECT_STREQ(z_info.dim_names[1], "6");
  EXPECT_LT(z_info.min_dims[0], z_info.max_dims[0]);
  EXPECT_EQ(z_info.max_dims[1], 6);
  EXPECT_NE(std::string(anneal_engine_device(engine_)), "");
  EXPECT_EQ(anneal_engine_load_warning_count(engine_), 0);

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

TEST_F(CApi, LoadsFromMemory) {
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  anneal_engine* engine = nullptr;
  // Copied: the bytes may go.
  {
    const std::string copy = bytes;
    ASSERT_EQ(anneal_engine_load_memory(copy.data(), copy.size(), nullptr, nullptr, nullptr,
                                        &engine, &error_),
              ANNEAL_OK)
        << error_.text;
  }
  EXPECT_EQ(anneal_engine_input_count(engine), 2);
  anneal_engine_free(engine);

  // Used where they lie, at an aligned address: released with the last of engine and contexts.
  const std::unique_ptr<void, decltype(&std::free)> aligned(
      std::aligned_alloc(64, (bytes.size() + 63) / 64 * 64), std::free);
  std::memcpy(aligned.get(), bytes.data(), bytes.size());
  int released = 0;
  const auto release = [](void* argument) { ++*static_cast<int*>(argument); };
  ASSERT_EQ(anneal_engine_load_memory(aligned.get(), bytes.size(), release, &released, nullptr,
                                      &engine, &error_),
            ANNEAL_OK)
      << error_.text;
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error_), ANNEAL_OK) << error_.text;
  anneal_engine_free(engine);
  EXPECT_EQ(released, 0);
  anneal_context_free(context);
  EXPECT_EQ(released, 1);

  // Copied from any other address, and released at once.
  const std::unique_ptr<void, decltype(&std::free)> shifted(
      std::aligned_alloc(64, (bytes.size() + 127) / 64 * 64), std::free);
  char* const odd = static_cast<char*>(shifted.get()) + 1;
  std::memcpy(odd, bytes.data(), bytes.size());
  released = 0;
  ASSERT_EQ(
      anneal_engine_load_memory(odd, bytes.size(), release, &released, nullptr, &engine, &error_),
      ANNEAL_OK)
      << error_.text;
  EXPECT_EQ(released, 1);
  anneal_engine_free(engine);
  EXPECT_EQ(released, 1);

  EXPECT_EQ(anneal_engine_load_memory(bytes.data(), bytes.size() / 2, release, &released, nullptr,
                                      &engine, &error_),
            ANNEAL_INCOMPATIBLE_PLAN);
  EXPECT_EQ(released, 2);
  EXPECT_THAT(error_.text, HasSubstr("while loading an engine from memory"));
}

TEST_F(CApi, ProfilesAndCountsMemory) {
  std::vector<float> values(18);
  const anneal_tensor memory = tensor(values, {3, 6});
  for (const char* name : {"x", "z"})
    ASSERT_EQ(anneal_context_set_input(context_, name, &memory, &error_), ANNEAL_OK);
  int32_t count = 0;
  ASSERT_EQ(anneal_context_profile(context_, nullptr, 0, &count, &error_), ANNEAL_OK);
  ASSERT_GT(count, 1);
  std::vector<anneal_step_time> times(static_cast<size_t>(count));
  ASSERT_EQ(anneal_context_profile(context_, times.data(), count, &count, &error_), ANNEAL_OK);
  for (const anneal_step_time& time : times) {
    EXPECT_STRNE(time.step, "");
    EXPECT_GE(time.microseconds, 0);
  }
  EXPECT_EQ(anneal_context_profile(context_, nullptr, 1, &count, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_GT(anneal_context_memory_bytes(context_), 0u);
  EXPECT_EQ(anneal_context_run_warning_count(context_), 0);
}

TEST_F(CApi, MemoryOfCardsIsRefused) {
  std::vector<float> values(18);
  anneal_tensor memory = tensor(values, {3, 6});
  memory.memory = ANNEAL_CUDA;
  memory.memory_device = 1;
  EXPECT_EQ(anneal_context_set_input(context_, "x", &memory, &error_), ANNEAL_UNSUPPORTED);
  EXPECT_THAT(error_.text, HasSubstr("input \"x\" lies in the memory of card 1"));
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

TEST_F(CApi, InputsMayHaveDefaultValues) {
  constexpr std::string_view kScaled = R"txt(
graph scaled(x: f32[2], w: f32[2] = f32[2]{2, 3})
  y = Pointwise(x, w) program="(f32,f32)->(f32) mul($0,$1)"
  return y
)txt";
  const std::vector<std::byte> file = save(build_text(kScaled));
  anneal_engine* engine = nullptr;
  ASSERT_EQ(anneal_engine_load_memory(file.data(), file.size(), nullptr, nullptr, nullptr, &engine,
                                      &error_),
            ANNEAL_OK)
      << error_.text;
  anneal_tensor value = {};
  EXPECT_EQ(anneal_engine_input_default(engine, 0, &value), 0);
  EXPECT_EQ(anneal_engine_input_default(engine, 1, nullptr), 1);
  ASSERT_EQ(anneal_engine_input_default(engine, 1, &value), 1);
  EXPECT_EQ(value.dims[0], 2);
  EXPECT_EQ(static_cast<const float*>(value.data)[1], 3);
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error_), ANNEAL_OK) << error_.text;
  std::vector<float> ones = {1, 1}, fives = {5, 5};
  const anneal_tensor x = tensor(ones, {2}), w = tensor(fives, {2});
  const auto first = [&] {
    EXPECT_EQ(anneal_context_run(context, &error_), ANNEAL_OK) << error_.text;
    anneal_tensor y = {};
    EXPECT_EQ(anneal_context_output(context, "y", &y, &error_), ANNEAL_OK) << error_.text;
    return *static_cast<const float*>(y.data);
  };
  EXPECT_EQ(anneal_context_set_input(context, "x", &x, &error_), ANNEAL_OK) << error_.text;
  EXPECT_EQ(first(), 2);
  EXPECT_EQ(anneal_context_set_input(context, "w", &w, &error_), ANNEAL_OK) << error_.text;
  EXPECT_EQ(first(), 5);
  EXPECT_EQ(anneal_context_clear_input(context, "w", &error_), ANNEAL_OK) << error_.text;
  EXPECT_EQ(first(), 2);
  EXPECT_EQ(anneal_context_clear_input(context, "v", &error_), ANNEAL_INVALID_ARGUMENT);
  anneal_context_free(context);
  anneal_engine_free(engine);
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
  EXPECT_EQ(load_on("toaster", &none), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  anneal_engine_free(nullptr);
  anneal_context_free(nullptr);
  EXPECT_STREQ(anneal_version(), "0.1.0");
}

}  // namespace
}  // namespace anneal::testing
