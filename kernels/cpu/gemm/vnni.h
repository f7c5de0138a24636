// Matrix products of u8 and s8 by AVX-512 VNNI.
#pragma once
#include "anneal/kernels/cpu/gemm/gemm_kernels.h"

namespace anneal::cpu {

GemmKernels vnni_gemm();  // REQUIRES: the CPU has AVX-512 F, BW, DQ, VL and VNNI

// pack_panel() for kU8S8, for `width` columns from `first` on, if elements are contiguous along k
// or along the columns; else false.
bool vnni_pack(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
               std::byte* to, int32_t* sums);

}  // namespace anneal::cpu
