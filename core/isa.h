// The instruction sets that our kernels may use: those of the CPU, limited by ANNEAL_MAX_ISA.
#pragma once
#include <cstdint>
#include <string_view>

namespace anneal {

enum class Isa : uint8_t {
  kBaseline = 0,  // x86-64 with SSE2
  kAvx2 = 1,      // AVX2, FMA, F16C
  kAvx512 = 2,    // AVX-512 F, BW, CD, DQ, VL
  kFull = 3,      // AVX-512 VNNI and whatever else the CPU has
};
std::string_view to_string(Isa isa);  // "baseline", "avx2", "avx512", "full"

// The cap set by the environment variable ANNEAL_MAX_ISA (one of the names, or avx2_vnni, which is
// AVX2 with AVX-VNNI; absent: full), read once. Fails with kInvalidArgument if it holds anything
// else. Applies the cap to Highway's dispatch.
Isa max_isa();
// The best set this CPU has, at most max_isa().
Isa current_isa();
// Whether this CPU has AVX2 and AVX-VNNI, and the cap is avx2_vnni or full. Client CPUs have it
// without AVX-512.
bool has_avx_vnni();

}  // namespace anneal
