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

// The same where the result depends on these low bytes of the operand only.
template <class To, class A, class F, size_t bytes>
void unary_of_low(Warp& warp, const Instruction& instruction) {
  unary<To, A, F>(warp, instruction);
  if (warp.without_value() == 0) return;
  const Warp::Bytes a = warp.bytes_without_value(instruction, 1);
  uint32_t lanes = 0;
  for (size_t i = 0; i < kLanes; ++i) lanes |= uint32_t{(a[i] & ((1u << bytes) - 1)) != 0} << i;
  warp.set_without_value(lanes);
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
