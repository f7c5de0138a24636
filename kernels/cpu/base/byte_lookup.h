// Lookup of many bytes in a table of 256.
#pragma once
#include <cstdint>

#include "anneal/core/isa.h"

namespace anneal::cpu {

// to[i] = table[from[i]] for i in [0, n); from and to are the same or do not overlap.
using LookUpBytes = void (*)(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n);
LookUpBytes look_up_bytes(Isa isa);

}  // namespace anneal::cpu
