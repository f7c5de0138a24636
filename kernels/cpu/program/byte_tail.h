// The end of a program that is a function of one byte, as a lookup table. An example is a quantized
// activation after the rounding of its argument.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "anneal/graph/program/program.h"

namespace anneal::cpu {

struct ByteTail {
  Program head;  // to the byte that is looked up
  std::array<uint8_t, 256> table{};
};
// nullopt unless the program has one result, of 8 bits, that depends on nothing but one saturated
// register of 8 bits, through functions (exp, sigmoid and the like) that are slower than a table.
std::optional<ByteTail> cut_byte_tail(const Program& program);

}  // namespace anneal::cpu
