#include "anneal/kernels/cuda/code/nvrtc.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string program_with(const std::string& body) {
  Code code;
  const auto function =
      code.add({"test", {}, "KERNEL($name, 32)(In<f32> x, Out<f32> y) {" + body + "}"});
  return program_of(code.functions());
}

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_library().table) GTEST_SKIP() << nvrtc_library().why_not;
  }
};

TEST_F(NvrtcTest, MachineCodeForEveryArchitecture) {
  const std::string program = program_with("y[threadIdx.x] = to_f32(to_h16(x[threadIdx.x]));");
  for (const int architecture : {80, 86, 89, 90, 100, 120}) {
    SCOPED_TRACE(architecture);
    const auto cubin = nvrtc_compiler().compile(program, architecture);
    ASSERT_GT(cubin.size(), 64u);
    EXPECT_EQ(std::memcmp(cubin.data(), "\177ELF", 4), 0);
    const std::string_view text(reinterpret_cast<const char*>(cubin.data()), cubin.size());
    EXPECT_NE(text.find("test_"), std::string_view::npos);
  }
}

TEST_F(NvrtcTest, ErrorsQuoteTheLine) {
  EXPECT_THAT(error_of([] { nvrtc_compiler().compile(program_with("\n  y[0] = z[0];\n"), 80); }),
              AllOf(HasSubstr("internal: NVRTC refuses a device program for sm_80:\nprogram("),
                    HasSubstr("error: identifier \"z\" is undefined\n    |   y[0] = z[0];\n")));
}

TEST_F(NvrtcTest, AnArchitectureThatItDoesNotKnow) {
  EXPECT_THAT(
      error_of([] { nvrtc_compiler().compile("", 12); }),
      AllOf(HasSubstr("device: NVRTC "), HasSubstr(" does not compile for sm_12, only for sm_"),
            HasSubstr(", sm_90, ")));
}

TEST_F(NvrtcTest, IdentityNamesVersionAndFlags) {
  EXPECT_THAT(
      nvrtc_compiler().identity(),
      testing::MatchesRegex("NVRTC 1[0-9]\\.[0-9]\\.[0-9]+ build [-A-Z0-9a-z._]+ -std=c\\+\\+17 "
                            "--fmad=false -default-device"));
}

// A machine with another copy of this NVRTC finds images that were made with ours.
TEST_F(NvrtcTest, IdentityDoesNotDependOnTheFile) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(nvrtc_library().path, ignored);
  EXPECT_THAT(nvrtc_compiler().identity(), testing::Not(HasSubstr(std::to_string(bytes))));
}

}  // namespace
}  // namespace anneal::cuda
