// All panels of a matrix, as they are packed at load.
#pragma once
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {

inline void pack(const PackLayout& layout, const PackSource& source, std::byte* to) {
  for (int64_t panel = 0; panel < layout.panels(); ++panel)
    pack_panel(layout, source, panel, to, PackTo::kMemory);
}

}  // namespace anneal::cpu
