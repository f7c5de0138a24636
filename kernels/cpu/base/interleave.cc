#include "anneal/kernels/cpu/base/interleave.h"

#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/base/interleave.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, int kChannels>
void interleave_planes(const T* from, int64_t plane, int64_t n, T* to) {
  // Vectors of one block: wider ones would have to be put in order across blocks first.
  const hn::CappedTag<T, 16 / sizeof(T)> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step, to += step * kChannels) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + plane + i);
    if constexpr (kChannels == 2) {
      hn::StoreInterleaved2(a, b, d, to);
    } else {
      const auto c = hn::LoadU(d, from + 2 * plane + i);
      if constexpr (kChannels == 3) {
        hn::StoreInterleaved3(a, b, c, d, to);
      } else {
        hn::StoreInterleaved4(a, b, c, hn::LoadU(d, from + 3 * plane + i), d, to);
      }
    }
  }
  for (; i < n; ++i)
    for (int64_t c = 0; c < kChannels; ++c) *to++ = from[c * plane + i];
}

template <class T>
void interleave_of(int64_t channels, const std::byte* from, int64_t plane, int64_t n,
                   std::byte* to) {
  const auto* in = reinterpret_cast<const T*>(from);
  auto* out = reinterpret_cast<T*>(to);
  switch (channels) {
    case 2:
      return interleave_planes<T, 2>(in, plane, n, out);
    case 3:
      return interleave_planes<T, 3>(in, plane, n, out);
    default:
      return interleave_planes<T, 4>(in, plane, n, out);
  }
}

}  // namespace

void interleave_bytes(size_t size, int64_t channels, const std::byte* from, int64_t plane,
                      int64_t n, std::byte* to) {
  if (size == 1) return interleave_of<uint8_t>(channels, from, plane, n, to);
  if (size == 2) return interleave_of<uint16_t>(channels, from, plane, n, to);
  interleave_of<float>(channels, from, plane, n, to);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

Interleave interleave(Isa isa) { return ANNEAL_BY_ISA(isa, interleave_bytes); }

}  // namespace anneal::cpu
#endif
