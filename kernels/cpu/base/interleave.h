// Conversion of planes to pixels, [C, n] to [n, C], for the few channels of pictures.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/core/isa.h"

namespace anneal::cpu {

inline constexpr int64_t kMostPlanes = 4;

// to[i * channels + c] = from[c * plane + i] for i in [0, n); elements of `size` bytes: 1, 2, 4.
// REQUIRES: 2 <= channels <= kMostPlanes
using Interleave = void (*)(size_t size, int64_t channels, const std::byte* from, int64_t plane,
                            int64_t n, std::byte* to);
Interleave interleave(Isa isa);

}  // namespace anneal::cpu
