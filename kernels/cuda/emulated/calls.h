// What device text calls on the emulated device.
#pragma once
#include "anneal/kernels/cuda/device/emulator.h"

namespace anneal::cuda {

const emulator::Api& emulator_api();

}  // namespace anneal::cuda
