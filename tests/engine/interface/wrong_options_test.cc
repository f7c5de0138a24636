// Values that no option has: kInvalidArgument that names the option, and the port in Error::port().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/run/c_api.h"
#include "anneal/tests/engine/build_and_run.h"
#include "anneal/tests/engine/graphs.h"
#include "anneal/tests/error_of.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kNoType = static_cast<DataType>(99);

std::optional<Error> thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(WrongOptions, AContextKeepsAtLeastOneShape) {
  const auto engine = engine_of(build_text(kDynamicNet));
  for (const int size : {-1, 0})
    EXPECT_THAT(error_of([&] { ExecutionContext(engine, {.shape_cache_size = size}); }),
                AllOf(StartsWith("invalid_argument"), HasSubstr("shape_cache_size is")));
}

TEST(WrongOptions, ALimitBelowEveryDeclaredShapeFailsAtOnce) {
  const auto engine = engine_of(build_text(kDynamicNet));
  EXPECT_THAT(error_of([&] { ExecutionContext(engine, {.max_memory = 1}); }),
              AllOf(StartsWith("limit"), HasSubstr("max_memory is 1:")));
  // The smallest shape fits.
  ExecutionContext smallest(engine, {.prewarm_profiles = false});
  const InputShape shapes[] = {{"x", {1, 6}}, {"z", {1, 6}}};
  smallest.prepare(shapes);
  EXPECT_NO_THROW(ExecutionContext(engine, {.max_memory = smallest.memory_bytes() + 64}));
}

TEST(WrongOptions, ADataTypeThatIsNone) {
  std::vector<float> values(18);
  EXPECT_THAT(error_of([&] {
                view(values, {3, 6}, kNoType);
              }),
              StartsWith("invalid_argument: there is no DataType 99"));
  EXPECT_THAT(error_of([] { to_string(kNoType); }), StartsWith("invalid_argument"));
  ExecutionContext context(engine_of(build_text(kDynamicNet)));
  TensorView memory = view(values, {3, 6});
  memory.dtype = kNoType;
  const auto error = thrown_by([&] { context.set_input("x", memory); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error->what(), HasSubstr("input \"x\" has dtype 99"));
  EXPECT_EQ(error->port(), "x");
}

TEST(WrongOptions, ErrorsOfCTensorsNameTheirPort) {
  const EngineFile file = build_text(kDynamicNet);
  const std::vector<std::byte> bytes = save(file);
  anneal_error error = {};
  error.size = sizeof(error);
  anneal_engine* engine = nullptr;
  anneal_context* context = nullptr;
  ASSERT_EQ(anneal_engine_load_memory(bytes.data(), bytes.size(), nullptr, nullptr, nullptr,
                                      &engine, &error),
            ANNEAL_OK);
  ASSERT_EQ(anneal_context_make(engine, nullptr, &context, &error), ANNEAL_OK);
  std::vector<float> values(18);
  const auto refused = [&](auto change) {
    anneal_tensor memory = {};
    memory.size = sizeof(memory);
    memory.dtype = ANNEAL_F32;
    memory.rank = 2;
    memory.dims[0] = 3;
    memory.dims[1] = 6;
    memory.data = values.data();
    change(memory);
    EXPECT_EQ(anneal_context_set_input(context, "x", &memory, &error), ANNEAL_INVALID_ARGUMENT);
    EXPECT_STREQ(error.port, "x");
    return std::string(error.message);
  };
  const auto wrong_dtype = [](anneal_tensor& memory) {
    memory.dtype = static_cast<anneal_dtype>(14);
  };
  EXPECT_THAT(refused(wrong_dtype), HasSubstr("\"x\" has an unknown dtype, 14"));
  EXPECT_EQ(error.rank, 2);
  EXPECT_EQ(error.dims[1], 6);
  EXPECT_THAT(
      refused([](anneal_tensor& memory) { memory.memory = static_cast<anneal_memory_kind>(7); }),
      HasSubstr("unknown kind of memory, 7"));
  EXPECT_THAT(refused([](anneal_tensor& memory) { memory.rank = 9; }), HasSubstr("a rank of 9"));
  anneal_context_free(context);
  anneal_engine_free(engine);
}

TEST(WrongOptions, ADataFormatDoesNotDivideByZero) {
  const DataInput input{"x", DataType::kF32, {-1, 1, 32, 32}};
  const std::string path = "samples/glyphs";
  DataFormat format = find_data_format(path);
  EXPECT_NO_THROW(open_dataset(path, format, std::span(&input, 1)));
  format.std = {0};
  EXPECT_THAT(error_of([&] { open_dataset(path, format, std::span(&input, 1)); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("std is 0")));
  format.std = {};
  format.scale = {1.0 / 0.0};
  EXPECT_THAT(error_of([&] { open_dataset(path, format, std::span(&input, 1)); }),
              AllOf(StartsWith("invalid_argument"), HasSubstr("scale is inf")));
}

}  // namespace
}  // namespace anneal::testing
