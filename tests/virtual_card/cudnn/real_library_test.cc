// The real cuDNN with what the fake is given: it must refuse nothing that the fake takes. Where it
// is less strict, refusals.cc says so.
#include "anneal/tests/virtual_card/cudnn/refusals.h"

namespace anneal::fake_cudnn {
namespace {

class RealCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = open_library(REAL_CUDNN);
    if (library_ == nullptr) GTEST_SKIP() << "cuDNN is not here";
    if (library_->cudnnGetVersion() / 10000 != 9) GTEST_SKIP() << "this is not cuDNN 9";
  }
  const Library* library_ = nullptr;
};

TEST_F(RealCudnn, TakesTheGraphsThatTheFakeTakes) {
  for (const RightGraph& right : right_graphs()) {
    const Made made = right.make(*library_);
    EXPECT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << right.name << ": " << made.error();
  }
}

TEST_F(RealCudnn, IsAsStrictAsRefusalsSay) {
  if (library_->cudnnGetVersion() != 91900) GTEST_SKIP() << "the list is of cuDNN 9.19";
  for (const WrongDescriptor& wrong : wrong_descriptors()) {
    if (wrong.real == Real::kEndsTheProcess) continue;
    const Made made = wrong.make(*library_);
    EXPECT_EQ(made.status() != CUDNN_STATUS_SUCCESS, wrong.real == Real::kRefuses)
        << wrong.name << ": " << made.error();
  }
}

TEST_F(RealCudnn, PlansOfAnotherDeviceAreRefusedWithTheSameStatus) {
  const Made h100 = properties(*library_), a100 = properties(*library_, property_text(800));
  const auto configs = configs_of(heuristics(right_graphs()[1].make(*library_), &h100));
  ASSERT_FALSE(configs.empty());
  Made made = plan(configs[0], &h100);
  const std::string json = json_of(made);
  ASSERT_EQ(made.status(), CUDNN_STATUS_SUCCESS) << made.error();
  EXPECT_EQ(loaded_plan(*library_, json, &h100).status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(loaded_plan(*library_, json, &a100).status(), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
  EXPECT_EQ(loaded_plan(*library_, "{}", &h100).status(), CUDNN_STATUS_BAD_PARAM);
  std::string other = json;
  other.replace(other.find("91900"), 5, "91800");
  EXPECT_EQ(loaded_plan(*library_, other, &h100).status(),
            CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
}

}  // namespace
}  // namespace anneal::fake_cudnn
