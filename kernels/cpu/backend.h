// The CPU backend: the device and its kernels. Targets: "cpu" (whatever this CPU has) and "cpu:ISA"
// with ISA one of core/isa.h, which may be below what the CPU has, never above.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal {

const Backend& cpu_backend();
// The same device with the reference kernels alone: the truth, slowly.
const Backend& cpu_reference_backend();

}  // namespace anneal
