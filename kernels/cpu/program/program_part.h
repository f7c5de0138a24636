// Programs that are parts of others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "anneal/graph/program/program.h"

namespace anneal::cpu {

struct ReplacedRegister {
  uint16_t reg = 0, by = 0;  // by: an earlier register
};
// The program whose only result is this register, of the same inputs.
Program part_of_program(const Program& program, uint16_t last, DataType dtype,
                        std::optional<ReplacedRegister> replaced = std::nullopt);

// An epilogue that adds integers to sums of i32 before all else.
struct SumOffset {
  Program rest;      // without the addition, of the same inputs
  size_t input = 0;  // of the integers, which `rest` does not read
};
std::optional<SumOffset> cut_sum_offset(const Program& program);

}  // namespace anneal::cpu
