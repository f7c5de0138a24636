// The CPU backend: the device and its kernels. Targets are "cpu" (everything that this CPU has) and
// "cpu:ISA" with an ISA of core/isa.h that the CPU has.
#pragma once
#include "anneal/kernels/kernel.h"

namespace anneal {

const Backend& cpu_backend();
// The same device with the reference kernels alone: the truth, slowly.
const Backend& cpu_reference_backend();
// What the device allocates from now on is the allocator's; null: the system's. REQUIRES: a device
// of this backend
void use_allocator(Device& device, std::shared_ptr<Allocator> allocator);
// Whether products of bf16 are faster than those of f32 on this device: with AVX512_BF16, in
// targets of the best instruction set. Elsewhere they are computed in f32.
bool cpu_computes_bf16(const Device& device);
// Whether products of 8 bits use AVX-512 VNNI. Elsewhere they are widened to 16 bits, and f32 may
// be as fast.
bool cpu_has_vnni(const Device& device);

}  // namespace anneal
