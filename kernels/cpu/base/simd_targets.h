// The instruction sets for which our kernels are compiled: AVX-512, AVX2 and the baseline. Included
// before anything of Highway's by every file that is compiled once per target.
//
// The target is chosen per kernel, from its device, and not by Highway's global dispatch: an engine
// for "cpu:avx2" runs its AVX2 code on any machine, and one process can compare them all.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

#include <hwy/detect_targets.h>

#include "anneal/core/isa.h"

namespace anneal::cpu {

// The one of several variants that was compiled for isa.
template <class T>
constexpr T by_isa(Isa isa, T avx512, T avx2, T baseline) {
  return isa >= Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 ? avx2 : baseline;
}

}  // namespace anneal::cpu

#if (HWY_TARGETS & HWY_AVX3) && (HWY_TARGETS & HWY_AVX2)
#define ANNEAL_BY_ISA(isa, function) \
  ::anneal::cpu::by_isa((isa), &N_AVX3::function, &N_AVX2::function, &HWY_STATIC_DISPATCH(function))
#else  // the whole build is for one instruction set
#define ANNEAL_BY_ISA(isa, function) (static_cast<void>(isa), &HWY_STATIC_DISPATCH(function))
#endif
