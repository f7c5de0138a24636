// A function of one 8-bit number as its 256 values.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal {

// By the bits of the argument.
using ByteTable = std::array<uint8_t, 256>;

// The table of a Pointwise layer with one 8-bit input and one 8-bit result; from the tactic, if
// there is one, so that an engine gives the same results wherever it is loaded. Refuses any other
// layer.
Result<ByteTable> byte_table(const Program& program, const Request& request);
std::vector<std::byte> tactic_of(const ByteTable& table);

}  // namespace anneal
