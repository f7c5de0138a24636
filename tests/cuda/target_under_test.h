// The driver and the compiler of the device that ANNEAL_TEST_DEVICE names.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/code/nvrtc.h"
#include "anneal/tests/cuda/emulated.h"

namespace anneal::cuda {

inline bool is_emulated() { return device_under_test() == "emulated"; }
// Devices that find races and the like; a GPU does not.
inline bool finds_faults() {
  return is_emulated() || std::getenv("ANNEAL_VIRTUAL_CARD_PTX") != nullptr;
}
inline const Driver& driver_under_test() {
  if (is_emulated()) return emulated_driver();
  const Driver& driver = driver_library().table.value();
  EXPECT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  return driver;
}
inline const Compiler& compiler_under_test() {
  return is_emulated() ? host_compiler() : nvrtc_compiler();
}

}  // namespace anneal::cuda
