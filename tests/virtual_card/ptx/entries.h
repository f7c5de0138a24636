// The instructions that the interpreter has, by family.
#pragma once
#include <span>
#include <string_view>

#include "anneal/tests/virtual_card/ptx/warp.h"

namespace anneal::ptx {

struct Entry {
  std::string_view opcode;
  void (*run)(Warp& warp, const Instruction& instruction);
  // The operands, results first, then '=': p predicate, h w d registers of 16, 32, 64 bits, digits
  // for vectors ("4w"), i an integer that becomes the next of Instruction::parameters, c any
  // predicate with "!" allowed (its negation becomes the next parameter).
  std::string_view signature;
};

// The same in every lane, and without another effect than the results.
std::span<const Entry> integer_entries();
std::span<const Entry> float_entries();
std::span<const Entry> compare_entries();
std::span<const Entry> convert_entries();
std::span<const Entry> move_entries();
// The same in every lane, and with its carry.
std::span<const Entry> carry_entries();
// Of a warp as a whole.
std::span<const Entry> matrix_entries();
std::span<const Entry> mbarrier_entries();
std::span<const Entry> warp_entries();  // exchanges between lanes, copies, barriers

}  // namespace anneal::ptx
