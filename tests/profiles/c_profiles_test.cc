// Profiles in the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "anneal/engine/onnx/c_builder.h"
#include "anneal/tests/refit/networks.h"

namespace anneal::testing {
namespace {

using ::testing::HasSubstr;

anneal_input_range range(int64_t profile, int64_t batch, int64_t side) {
  anneal_input_range made = {};
  made.size = sizeof(made);
  made.name = "image";
  made.rank = 4;
  const int64_t sizes[] = {batch, 3, side, side};
  std::memcpy(made.opt, sizes, sizeof(sizes));
  made.profile = profile;
  return made;
}

class CProfiles : public ::testing::Test {
 protected:
  void SetUp() override { error_.size = sizeof(error_); }
  void TearDown() override { anneal_engine_free(engine_); }

  anneal_code build(std::vector<anneal_input_range> ranges) {
    const Bytes bytes = model(kOld, {.batch = "N", .side = "S"});
    anneal_build_options options = {};
    options.size = sizeof(options);
    options.ranges = ranges.data();
    options.range_count = static_cast<int32_t>(ranges.size());
    void* made = nullptr;
    uint64_t made_bytes = 0;
    const anneal_code code =
        anneal_build_memory(bytes.data(), bytes.size(), &options, &made, &made_bytes, &error_);
    if (code != ANNEAL_OK) return code;
    const anneal_code loaded =
        anneal_engine_load_memory(made, made_bytes, nullptr, nullptr, nullptr, &engine_, &error_);
    anneal_build_free(made);
    return loaded;
  }

  anneal_error error_ = {};
  anneal_engine* engine_ = nullptr;
};

TEST_F(CProfiles, AContextTakesTheOneThatItNames) {
  ASSERT_EQ(build({range(0, 1, 12), range(1, 4, 16)}), ANNEAL_OK) << error_.message;
  for (const int64_t profile : {int64_t{0}, int64_t{1}, int64_t{2}}) {
    anneal_context_options options = {};
    options.size = sizeof(options);
    options.profile = profile;
    anneal_context* context = nullptr;
    ASSERT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_OK)
        << error_.message;
    // Of 4 images, which profile 1 takes, here number 2.
    const std::vector<float> images = drawn(1, 4 * 3 * 16 * 16);
    anneal_tensor memory = {};
    memory.size = sizeof(memory);
    memory.dtype = ANNEAL_F32;
    memory.rank = 4;
    const int64_t sizes[] = {4, 3, 16, 16};
    std::memcpy(memory.dims, sizes, sizeof(sizes));
    memory.data = const_cast<float*>(images.data());
    EXPECT_EQ(anneal_context_set_input(context, "image", &memory, &error_), ANNEAL_OK);
    EXPECT_EQ(anneal_context_run(context, &error_),
              profile == 1 ? ANNEAL_INVALID_ARGUMENT : ANNEAL_OK);
    anneal_context_free(context);
  }
  anneal_context_options options = {};
  options.size = sizeof(options);
  options.profile = 3;
  anneal_context* context = nullptr;
  EXPECT_EQ(anneal_context_make(engine_, &options, &context, &error_), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("there is no profile 2"));
}

TEST_F(CProfiles, RangesOfOtherProfilesAreRefused) {
  EXPECT_EQ(build({range(0, 1, 12), range(2, 4, 16)}), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("profile 2; 2 ranges are of profiles 0 to 1"));
  EXPECT_EQ(build({range(-1, 1, 12)}), ANNEAL_INVALID_ARGUMENT);
  EXPECT_EQ(build({range(0, 1, 12), range(0, 4, 16)}), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("two ranges are given for \"image\" in profile 0"));
  EXPECT_EQ(build({range(0, 1, 12), range(2, 4, 16), range(2, 1, 8)}), ANNEAL_INVALID_ARGUMENT);
  anneal_input_range other = range(2, 1, 8);
  other.name = "other";
  EXPECT_EQ(build({range(0, 1, 12), range(2, 4, 16), other}), ANNEAL_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("profile 1 has no range, and profile 2 has one"));
}

}  // namespace
}  // namespace anneal::testing
