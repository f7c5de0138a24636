// The C interface gives what the C++ one gives, and no exception leaves it.
#include "anneal/engine/run/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
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

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Struct>
Struct sized() {
  Struct result = {};
  result.size = sizeof(result);
  return result;
}

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("anneal_c_api_test" + std::to_string(getpid()) + ".engine");
    write_engine_file(path_, build_text(kDynamicNet));
    ASSERT_EQ(anneal_engine_load(path_.c_str(), nullptr, &engine_, &error_), ANNEAL_OK)
        << error_.message;
    ASSERT_EQ(anneal_context_make(engine_, nullptr, &context_, &error_), ANNEAL_OK)
        << error_.message;
  }
  void TearDown() override {
    anneal_context_free(context_);
    anneal_engine_free(engine_);
    std::filesystem::remove(path_);
  }
  anneal_tensor tensor(std::vector<float>& values, std::vector<int64_t> dims) {
    auto result = sized<anneal_tensor>();
    result.dtype = ANNEAL_F32;
    result.rank = static_cast<int32_t>(dims.size());
    result.data = values.data();
    std::ranges::copy(dims, result.dims);
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
  anneal_error error_ = sized<anneal_error>();
};

TEST_F(CApi, ContextsAreMadeWithOptions) {
  anneal_context* context = nullptr;
  anneal_context_options options = {};
  EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.message, "a struct has no size: set size to sizeof(anneal_context_options)");
  options.size = sizeof(options);
  options.threads = 1;
  options.max_memory = 1 << 20;
  options.shape_cache_size = 2;
  options.micro_batch = 1;
  options.spin = 1;
  for (const size_t size : {offsetof(anneal_context_options, max_memory), sizeof(options)}) {
    options.size = size;
    EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK)
        << error_.message;
    anneal_context_free(context);
  }
  anneal_engine* other = nullptr;
  EXPECT_EQ(load_on("gpu", &other), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("\"gpu\" is no device: use auto, cpu,"));
  EXPECT_EQ(load_on("auto", &other), ANNEAL_OK) << error_.message;
  anneal_engine_free(other);
}

// A program of a later version: fields that this library lacks must be 0.
TEST_F(CApi, LaterStructsAreTakenWhereTheyAskForNothingNew) {
  struct {
    anneal_context_options known;
    int64_t added;
  } later = {};
  later.known.size = sizeof(later);
  anneal_context* context = nullptr;
  EXPECT_EQ(anneal_context_make(engine_, &later.known, &context, &error_), ANNEAL_OK)
      << error_.message;
  anneal_context_free(context);
  later.added = 1;
  EXPECT_EQ(anneal_context_make(engine_, &later.known, &context, &error_), ANNEAL_UNSUPPORTED);
  EXPECT_THAT(error_.message, HasSubstr("has fields that this library does not know"));
  struct {
    anneal_engine_info known;
    int64_t added = 7;
  } info = {};
  info.known.size = sizeof(info);
  EXPECT_EQ(anneal_engine_get_info(engine_, &info.known, &error_), ANNEAL_OK);
  EXPECT_EQ(info.known.input_count, 2);
  EXPECT_EQ(info.added, 0);
}

// Zeroed options mean the same as none: all cores.
TEST_F(CApi, ZeroIsTheDefaultOfEveryOption) {
  EXPECT_EQ(EngineOptions{}.threads, 0);
  EXPECT_EQ(ContextOptions{}.threads, 0);
  auto options = sized<anneal_context_options>();
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK);
  auto zeroed = sized<anneal_context_info>(), none = zeroed;
  ASSERT_EQ(anneal_context_get_info(context, &zeroed, &error_), ANNEAL_OK);
  ASSERT_EQ(anneal_context_get_info(context_, &none, &error_), ANNEAL_OK);
  EXPECT_EQ(zeroed.memory_bytes, none.memory_bytes);
  anneal_context_free(context);
}

TEST_F(CApi, RunsAnEngine) {
  auto engine_info = sized<anneal_engine_info>();
  ASSERT_EQ(anneal_engine_get_info(engine_, &engine_info, &error_), ANNEAL_OK) << error_.message;
  ASSERT_EQ(engine_info.input_count, 2);
  ASSERT_EQ(engine_info.output_count, 2);
  EXPECT_STRNE(engine_info.device, "");
  EXPECT_EQ(engine_info.load_warning_count, 0);
  auto z_info = sized<anneal_tensor_info>();
  ASSERT_EQ(anneal_engine_get_input(engine_, 1, &z_info, &error_), ANNEAL_OK) << error_.message;
  EXPECT_STREQ(z_info.name, "z");
  EXPECT_EQ(z_info.dims[0], -1);
  EXPECT_STREQ(z_info.dim_names[0], "N");
  EXPECT_STREQ(z_info.dim_names[1], "6");
  EXPECT_LT(z_info.min_dims[0], z_info.max_dims[0]);
  EXPECT_EQ(z_info.max_dims[1], 6);
  ASSERT_EQ(anneal_engine_get_output(engine_, 0, &z_info, &error_), ANNEAL_OK) << error_.message;
  EXPECT_EQ(z_info.rank, 2);
  for (const int32_t index : {-1, 2, INT32_MAX}) {
    EXPECT_EQ(anneal_engine_get_input(engine_, index, &z_info, &error_), ANNEAL_INVALID_ARGUMENT);
    EXPECT_EQ(anneal_engine_get_output(engine_, index, &z_info, &error_), ANNEAL_INVALID_ARGUMENT);
  }
  EXPECT_STREQ(error_.message, "there is no output 2147483647: the engine has 2");

  const Tensor x = random_f32({3, 6}, 1), z = random_f32({3, 6}, 2);
  std::vector<float> xs(x.as<float>().begin(), x.as<float>().end()),
      zs(z.as<float>().begin(), z.as<float>().end());
  const anneal_tensor a = tensor(xs, {3, 6}), b = tensor(zs, {3, 6});
  ASSERT_EQ(anneal_context_set_input(context_, "x", &a, &error_), ANNEAL_OK) << error_.message;
  ASSERT_EQ(anneal_context_set_input(context_, "z", &b, &error_), ANNEAL_OK) << error_.message;
  std::vector<float> rows(18);
  const anneal_tensor out = tensor(rows, {6, 3});
  ASSERT_EQ(anneal_context_set_output(context_, "rows", &out, &error_), ANNEAL_OK)
      << error_.message;
  ASSERT_EQ(anneal_context_run(context_, &error_), ANNEAL_OK) << error_.message;
  auto y = sized<anneal_tensor>();
  ASSERT_EQ(anneal_context_output(context_, "y", &y, &error_), ANNEAL_OK) << error_.message;
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
        << error_.message;
  }
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
      << error_.message;
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error_), ANNEAL_OK) << error_.message;
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
      << error_.message;
  EXPECT_EQ(released, 1);
  anneal_engine_free(engine);
  EXPECT_EQ(released, 1);

  EXPECT_EQ(anneal_engine_load_memory(bytes.data(), bytes.size() / 2, release, &released, nullptr,
                                      &engine, &error_),
            ANNEAL_INCOMPATIBLE_PLAN);
  EXPECT_EQ(released, 2);
  EXPECT_THAT(error_.message, HasSubstr("while loading an engine from memory"));
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
  EXPECT_EQ(anneal_context_profile(context_, times.data(), count, &count, &error_),
            ANNEAL_INVALID_ARGUMENT);
  times[0].size = sizeof(anneal_step_time);
  ASSERT_EQ(anneal_context_profile(context_, times.data(), count, &count, &error_), ANNEAL_OK);
  for (const anneal_step_time& time : times) {
    EXPECT_STRNE(time.step, "");
    EXPECT_GE(time.microseconds, 0);
  }
  EXPECT_EQ(anneal_context_profile(context_, nullptr, 1, &count, &error_), ANNEAL_INVALID_ARGUMENT);
  // A struct of an older header is shorter: so are the steps of the array.
  struct Shorter {
    uint64_t size = offsetof(anneal_step_time, microseconds);
    const char *step = nullptr, *kernel = nullptr;
  } shorter[2];
  ASSERT_EQ(anneal_context_profile(context_, reinterpret_cast<anneal_step_time*>(shorter), 2,
                                   &count, &error_),
            ANNEAL_OK)
      << error_.message;
  EXPECT_STRNE(shorter[1].kernel, "");
  auto info = sized<anneal_context_info>();
  EXPECT_EQ(anneal_context_get_info(context_, &info, &error_), ANNEAL_OK);
  EXPECT_GT(info.memory_bytes, 0u);
  EXPECT_EQ(info.run_warning_count, 0);
}

TEST_F(CApi, MemoryOfGpusIsRefused) {
  std::vector<float> values(18);
  anneal_tensor memory = tensor(values, {3, 6});
  memory.memory = ANNEAL_CUDA;
  memory.memory_device = 1;
  EXPECT_EQ(anneal_context_set_input(context_, "x", &memory, &error_), ANNEAL_UNSUPPORTED);
  EXPECT_THAT(error_.message, AllOf(HasSubstr("input \"x\" is in the memory of GPU 1"),
                                    HasSubstr("the engine is on x86-64")));
  EXPECT_STREQ(error_.port, "x");
}

// It does not unset the input, which may have a default value.
TEST_F(CApi, AScalarWithoutDataIsRefused) {
  auto scalar = sized<anneal_tensor>();
  scalar.dtype = ANNEAL_F32;
  EXPECT_EQ(anneal_context_set_input(context_, "x", &scalar, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("the tensor for \"x\" has no data"));
}

TEST_F(CApi, PreparesShapes) {
  constexpr uint64_t kSize = sizeof(anneal_input_shape);
  anneal_input_shape shapes[2] = {{kSize, "x", 2, {9, 6}}, {kSize, "z", 2, {9, 6}}};
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 2, &error_), ANNEAL_OK) << error_.message;
  shapes[1].dims[0] = 8;
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 2, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("N is 8 here, but 9 in input \"x\""));
  EXPECT_EQ(anneal_context_prepare(context_, shapes, 1, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("no shape is given for input \"z\""));
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
      << error_.message;
  auto info = sized<anneal_tensor_info>();
  ASSERT_EQ(anneal_engine_get_input(engine, 0, &info, &error_), ANNEAL_OK);
  EXPECT_EQ(info.default_data, nullptr);
  ASSERT_EQ(anneal_engine_get_input(engine, 1, &info, &error_), ANNEAL_OK);
  EXPECT_EQ(info.default_dims[0], 2);
  EXPECT_EQ(static_cast<const float*>(info.default_data)[1], 3);
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error_), ANNEAL_OK) << error_.message;
  std::vector<float> ones = {1, 1}, fives = {5, 5};
  const anneal_tensor x = tensor(ones, {2}), w = tensor(fives, {2});
  const auto first = [&] {
    EXPECT_EQ(anneal_context_run(context, &error_), ANNEAL_OK) << error_.message;
    auto y = sized<anneal_tensor>();
    EXPECT_EQ(anneal_context_output(context, "y", &y, &error_), ANNEAL_OK) << error_.message;
    return *static_cast<const float*>(y.data);
  };
  EXPECT_EQ(anneal_context_set_input(context, "x", &x, &error_), ANNEAL_OK) << error_.message;
  EXPECT_EQ(first(), 2);
  EXPECT_EQ(anneal_context_set_input(context, "w", &w, &error_), ANNEAL_OK) << error_.message;
  EXPECT_EQ(first(), 5);
  EXPECT_EQ(anneal_context_set_input(context, "w", nullptr, &error_), ANNEAL_OK) << error_.message;
  EXPECT_EQ(first(), 2);
  EXPECT_EQ(anneal_context_set_input(context, "v", nullptr, &error_), ANNEAL_INVALID_ARGUMENT);
  anneal_context_free(context);
  anneal_engine_free(engine);
}

TEST_F(CApi, ErrorsAreCodesAndSentences) {
  std::vector<float> values(18);
  const anneal_tensor good = tensor(values, {3, 6});
  anneal_tensor wrong = good;
  wrong.rank = 9;
  EXPECT_EQ(anneal_context_set_input(context_, "w", &good, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("there is no input \"w\""));
  EXPECT_STREQ(error_.port, "w");
  anneal_tensor long_rows = good;
  long_rows.dims[0] = 99;
  EXPECT_EQ(anneal_context_set_input(context_, "x", &long_rows, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.port, "x");
  EXPECT_EQ(error_.rank, 2);
  EXPECT_EQ(error_.dims[0], 99);
  anneal_tensor no_size = good;
  no_size.size = 0;
  EXPECT_EQ(anneal_context_set_input(context_, "x", &no_size, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("sizeof(anneal_tensor)"));
  EXPECT_STREQ(error_.port, "");
  EXPECT_EQ(anneal_context_set_input(context_, "x", &wrong, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(anneal_context_set_input(context_, nullptr, &good, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("name is null"));
  EXPECT_EQ(anneal_context_run(context_, nullptr), ANNEAL_INVALID_ARGUMENT);
  anneal_engine* none = nullptr;
  EXPECT_EQ(anneal_engine_load("/does/not/exist", nullptr, &none, &error_), ANNEAL_IO);
  EXPECT_EQ(error_.code, ANNEAL_IO);
  EXPECT_EQ(load_on("toaster", &none), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  anneal_engine_free(nullptr);
  anneal_context_free(nullptr);
  anneal_stream_free(nullptr);
  EXPECT_STREQ(anneal_version(), "0.1.0");
}

// Only the fields that a program's struct has are written.
TEST_F(CApi, AShortErrorIsFilledAsFarAsItReaches) {
  anneal_error error = {};
  std::memset(&error, 'x', sizeof(error));
  error.size = offsetof(anneal_error, port);
  EXPECT_EQ(anneal_context_run(context_, &error), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.port[0], 'x');
  error.size = offsetof(anneal_error, message) + 10;
  EXPECT_EQ(anneal_context_run(context_, &error), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(error.message), 9u);
  EXPECT_EQ(error.message[10], 'x');
  error.size = 0;
  error.code = ANNEAL_OK;
  EXPECT_EQ(anneal_context_run(context_, &error), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, ANNEAL_OK);
  error.size = ~uint64_t{0};  // not initialized
  EXPECT_EQ(anneal_context_run(context_, &error), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, ANNEAL_OK);
}

TEST_F(CApi, MemoryLimitsHaveACodeOfTheirOwn) {
  auto options = sized<anneal_context_options>();
  options.max_memory = 1;
  options.no_prewarm = 1;
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK);
  std::vector<float> values(18);
  const anneal_tensor memory = tensor(values, {3, 6});
  for (const char* name : {"x", "z"})
    ASSERT_EQ(anneal_context_set_input(context, name, &memory, &error_), ANNEAL_OK);
  EXPECT_EQ(anneal_context_run(context, &error_), ANNEAL_LIMIT);
  anneal_context_free(context);
}

TEST_F(CApi, EnqueuesRuns) {
  std::vector<float> values(18, 1.0f);
  const anneal_tensor memory = tensor(values, {3, 6});
  for (const char* name : {"x", "z"})
    ASSERT_EQ(anneal_context_set_input(context_, name, &memory, &error_), ANNEAL_OK);
  anneal_stream* stream = nullptr;
  ASSERT_EQ(anneal_stream_make(nullptr, &stream, &error_), ANNEAL_OK) << error_.message;
  std::atomic<int> read = 0;
  const auto tell = [](void* argument) { ++*static_cast<std::atomic<int>*>(argument); };
  int32_t done = -1;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(anneal_context_enqueue(context_, stream, tell, &read, &error_), ANNEAL_OK)
        << error_.message;
    EXPECT_EQ(anneal_context_run(context_, &error_), ANNEAL_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message, HasSubstr("call wait() before anything else"));
    ASSERT_EQ(anneal_context_is_done(context_, &done, &error_), ANNEAL_OK);
    ASSERT_EQ(anneal_context_wait(context_, &error_), ANNEAL_OK) << error_.message;
    ASSERT_EQ(anneal_context_is_done(context_, &done, &error_), ANNEAL_OK);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(read, i);
  }
  auto y = sized<anneal_tensor>();
  EXPECT_EQ(anneal_context_output(context_, "y", &y, &error_), ANNEAL_OK) << error_.message;
  ASSERT_EQ(anneal_context_enqueue(context_, stream, nullptr, nullptr, &error_), ANNEAL_OK);
  EXPECT_EQ(anneal_stream_wait(stream, &error_), ANNEAL_OK);
  anneal_stream_free(stream);
  anneal_stream* of_gpu = nullptr;
  ASSERT_EQ(anneal_stream_from_cuda(&read, &of_gpu, &error_), ANNEAL_OK);
  EXPECT_EQ(anneal_context_wait(context_, &error_), ANNEAL_OK);
  EXPECT_EQ(anneal_context_enqueue(context_, of_gpu, tell, &read, &error_), ANNEAL_UNSUPPORTED);
  EXPECT_EQ(read, 3);
  anneal_stream_free(of_gpu);
  EXPECT_EQ(anneal_stream_make("toaster", &stream, &error_), ANNEAL_INVALID_ARGUMENT);
}

TEST_F(CApi, NullObjectsAreRefused) {
  int32_t number = 0;
  auto engine_info = sized<anneal_engine_info>();
  auto context_info = sized<anneal_context_info>();
  auto tensor_info = sized<anneal_tensor_info>();
  auto tensor_of = sized<anneal_tensor>();
  const anneal_code codes[] = {
      anneal_engine_load(nullptr, nullptr, nullptr, &error_),
      anneal_engine_get_info(nullptr, &engine_info, &error_),
      anneal_engine_get_info(engine_, nullptr, &error_),
      anneal_engine_get_input(nullptr, 0, &tensor_info, &error_),
      anneal_engine_get_output(engine_, 0, nullptr, &error_),
      anneal_context_make(nullptr, nullptr, &context_, &error_),
      anneal_context_make(engine_, nullptr, nullptr, &error_),
      anneal_context_set_input(nullptr, "x", &tensor_of, &error_),
      anneal_context_set_output(context_, nullptr, &tensor_of, &error_),
      anneal_context_prepare(context_, nullptr, -1, &error_),
      anneal_context_run(nullptr, &error_),
      anneal_context_output(context_, "y", nullptr, &error_),
      anneal_context_profile(context_, nullptr, -1, &number, &error_),
      anneal_context_profile(context_, nullptr, 0, nullptr, &error_),
      anneal_context_get_info(nullptr, &context_info, &error_),
      anneal_context_enqueue(context_, nullptr, nullptr, nullptr, &error_),
      anneal_context_wait(nullptr, &error_),
      anneal_context_is_done(context_, nullptr, &error_),
      anneal_stream_make("cpu", nullptr, &error_),
      anneal_stream_from_cuda(nullptr, nullptr, &error_),
      anneal_stream_wait(nullptr, &error_),
  };
  for (size_t i = 0; i < std::size(codes); ++i) EXPECT_EQ(codes[i], ANNEAL_INVALID_ARGUMENT) << i;
}

}  // namespace
}  // namespace anneal::testing
