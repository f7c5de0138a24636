// Functions of the emulated device that device text calls.
#pragma once
#include "anneal/kernels/cuda/device/emulator.h"

namespace anneal::cuda {

const emulator::Api& emulator_api();

}  // namespace anneal::cuda
