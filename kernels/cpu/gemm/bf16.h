// Matrix products of bf16 by AVX-512 BF16.
//
// Products are exact and sums are f32, as everywhere; the instruction takes denormal numbers for
// zeros and adds the two products of a lane one after the other, the odd one first. So results
// differ from those of f32 arithmetic as those of another order of addition do.
#pragma once
#include "anneal/kernels/cpu/gemm/gemm_kernels.h"

namespace anneal::cpu {

GemmKernels dpbf16_gemm();  // REQUIRES: computes_bf16()

// pack_panel() for kBf16, for `width` columns from `first` on, if elements of bf16 are contiguous
// along k or along the columns; else false.
bool dpbf16_pack(const PackLayout& layout, const PackSource& source, int64_t first, int64_t width,
                 std::byte* to);

}  // namespace anneal::cpu
