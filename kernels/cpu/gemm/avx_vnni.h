// Matrix products of pairs of 16-bit integers (GemmKind::kI16) by AVX-VNNI.
#pragma once
#include "anneal/kernels/cpu/gemm/gemm_kernels.h"

namespace anneal::cpu {

// GemmKernels::block for the tiles of AVX2. REQUIRES: has_avx_vnni()
void avx_vnni_block(const GemmBlock& block);

}  // namespace anneal::cpu
