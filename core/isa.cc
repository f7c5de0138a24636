#include "anneal/core/isa.h"

#include <cpuid.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr Isa kAllIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kFull};

// Lower bits are better targets.
int64_t hwy_targets_above(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return HWY_SSSE3 | (HWY_SSSE3 - 1);
    case Isa::kAvx2:
      return HWY_AVX3 | (HWY_AVX3 - 1);
    case Isa::kAvx512:
      return HWY_AVX3_DL | (HWY_AVX3_DL - 1);
    case Isa::kFull:
      return 0;
  }
  return 0;
}

struct Cap {
  Isa isa = Isa::kFull;
  bool avx_vnni = true;
};

Cap read_cap() {
  const char* text = std::getenv("ANNEAL_MAX_ISA");
  if (text == nullptr || *text == '\0') return {};
  const bool avx_vnni = text == std::string_view("avx2_vnni");
  for (const Isa isa : kAllIsas) {
    if (to_string(isa) != text && !(avx_vnni && isa == Isa::kAvx2)) continue;
    if (isa != Isa::kFull) hwy::DisableTargets(hwy_targets_above(isa));
    return {isa, avx_vnni || isa == Isa::kFull};
  }
  fail(ErrorCode::kInvalidArgument, "ANNEAL_MAX_ISA is \"" + std::string(text) +
                                        "\"; it may be baseline, avx2, avx2_vnni, avx512 or full");
}

const Cap& cap() {
  static const Cap read = read_cap();
  return read;
}

// Clang does not know the feature by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

Isa detect() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) return Isa::kFull;
  if (avx512) return Isa::kAvx512;
  return avx2 ? Isa::kAvx2 : Isa::kBaseline;
}

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kFull:
      return "full";
  }
  return "?";
}

Isa max_isa() { return cap().isa; }

Isa current_isa() {
  static const Isa best = detect();
  return std::min(best, max_isa());
}

bool has_avx_vnni() {
  static const bool has = [] {
    constexpr unsigned kAvxVnni = 1U << 4;  // of EAX for leaf 7, subleaf 1
    unsigned a = 0, b = 0, c = 0, d = 0;
    return detect() >= Isa::kAvx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
           (a & kAvxVnni) != 0;
  }();
  return has && cap().avx_vnni;
}

}  // namespace anneal
