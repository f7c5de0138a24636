// Instructions that do the same in every lane, from a function of one lane.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "anneal/tests/virtual_card/ptx/warp.h"

namespace anneal::ptx {

template <class To, class A, class F>
void unary(Warp& warp, const Instruction& instruction) {
  const A* const a = warp.read<A>(instruction.at[1]);
  To result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = F()(a[i]);
  warp.write(instruction.at[0], result);
}

template <class To, class A, class B, class F>
void binary(Warp& warp, const Instruction& instruction) {
  const A* const a = warp.read<A>(instruction.at[1]);
  const B* const b = warp.read<B>(instruction.at[2]);
  To result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = F()(a[i], b[i]);
  warp.write(instruction.at[0], result);
}

template <class To, class A, class B, class C, class F>
void ternary(Warp& warp, const Instruction& instruction) {
  const A* const a = warp.read<A>(instruction.at[1]);
  const B* const b = warp.read<B>(instruction.at[2]);
  const C* const c = warp.read<C>(instruction.at[3]);
  To result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = F()(a[i], b[i], c[i]);
  warp.write(instruction.at[0], result);
}

}  // namespace anneal::ptx
