// The CPU backend: the device and its kernels. Targets are "cpu" (everything that this CPU has) and
// "cpu:ISA" with an ISA of core/isa.h that the CPU has.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal {

const Backend& cpu_backend();
// The same device with the reference kernels alone: the truth, slowly.
const Backend& cpu_reference_backend();
// Whether products of bf16 are faster than those of f32 on this device: with AVX512_BF16, in
// targets of the best instruction set. Elsewhere they are computed in f32.
bool cpu_computes_bf16(const Device& device);

}  // namespace anneal
