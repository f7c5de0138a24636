// Matrix products of u8 and s8 by AVX-512 VNNI.
#pragma once
#include "anneal/kernels/cpu/gemm.h"

namespace anneal::cpu {

GemmKernels vnni_gemm();  // REQUIRES: the CPU has AVX-512 F, BW, DQ, VL and VNNI

}  // namespace anneal::cpu
