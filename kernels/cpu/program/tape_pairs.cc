// Two f32 instructions in one loop, so that the value between them stays in a register.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/program/tape_pairs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "anneal/kernels/cpu/program/tape.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/tape_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <Opcode opcode, class D, class V>
HWY_INLINE V apply(D d, V a, V b) {
  if constexpr (opcode == Opcode::kAdd) return hn::Add(a, b);
  if constexpr (opcode == Opcode::kSub) return hn::Sub(a, b);
  if constexpr (opcode == Opcode::kMul) return hn::Mul(a, b);
  if constexpr (opcode == Opcode::kMin) return min_nan(d, a, b);
  if constexpr (opcode == Opcode::kMax) return max_nan(d, a, b);
}

template <Opcode first, Opcode second, bool first_is_right>
void pair(const Work& work) {
  map_vectors<float>(
      work.extent,
      [](auto d, auto a, auto b, auto c) HWY_ATTR {
        const auto between = apply<first>(d, a, b);
        if constexpr (first_is_right) return apply<second>(d, c, between);
        return apply<second>(d, between, c);
      },
      work.out, work.in[0], work.in[1], work.in[2]);
}

using Pair = void (*)(const Work&);
constexpr size_t kOpcodes = kPairOpcodes.size();

// Only a difference depends on the order of its operands.
template <size_t index, bool first_is_right>
constexpr Pair pair_of() {
  constexpr Opcode kFirst = kPairOpcodes[index / kOpcodes];
  constexpr Opcode kSecond = kPairOpcodes[index % kOpcodes];
  return &pair < kFirst, kSecond, first_is_right && kSecond == Opcode::kSub > ;
}

template <bool first_is_right, size_t... index>
constexpr auto pairs_of(std::index_sequence<index...>) {
  return std::array<Pair, sizeof...(index)>{pair_of<index, first_is_right>()...};
}

constexpr size_t number_of(Opcode opcode) {
  return static_cast<size_t>(std::find(kPairOpcodes.begin(), kPairOpcodes.end(), opcode) -
                             kPairOpcodes.begin());
}

}  // namespace

void run_pair(const Work& work) {
  constexpr std::make_index_sequence<kOpcodes * kOpcodes> kAll{};
  static constexpr auto kLeft = pairs_of<false>(kAll);
  static constexpr auto kRight = pairs_of<true>(kAll);
  const size_t index =
      number_of(work.step.first) * kOpcodes + number_of(work.step.instruction.opcode);
  (work.step.first_is_right ? kRight : kLeft)[index](work);
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
