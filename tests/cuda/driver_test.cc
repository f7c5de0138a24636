#include "anneal/kernels/cuda/api/driver.h"

#include <gtest/gtest.h>

#include "anneal/tests/error_of.h"

namespace anneal::cuda {
namespace {

Driver driver_that_knows_one_error() {
  Driver driver;
  driver.cuGetErrorName = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr;
    return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver.cuGetErrorString = [](CUresult result, const char** text) {
    *text = result == CUDA_ERROR_LAUNCH_FAILED ? "unspecified launch failure" : nullptr;
    return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  return driver;
}

TEST(Driver, ChecksNameTheErrorAndWhatWasDone) {
  const Driver driver = driver_that_knows_one_error();
  EXPECT_EQ(error_of([&] { check(driver, CUDA_SUCCESS, "copying"); }), "");
  EXPECT_EQ(error_of([&] { check(driver, CUDA_ERROR_LAUNCH_FAILED, "waiting"); }),
            "device: waiting: CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)");
  EXPECT_EQ(error_of([&] { check(driver, CUresult{12345}, "waiting"); }),
            "device: waiting: CUDA error 12345");
}

TEST(Driver, StickyErrorsAreThoseOfTheContext) {
  EXPECT_TRUE(is_sticky(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_TRUE(is_sticky(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_FALSE(is_sticky(CUDA_SUCCESS));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
}

}  // namespace
}  // namespace anneal::cuda
