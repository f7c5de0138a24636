// How many instructions were run, and how fast.
#pragma once
#include <cstdint>

namespace anneal::ptx {

// Adds the instructions of warps that one launch has run, and the time of its thread. The process
// prints the sum at its end if ANNEAL_VIRTUAL_CARD_SPEED is 1. Thread-safe.
void count_instructions(uint64_t count, double seconds);
// Of the calling thread, without the time of others on its core.
double thread_seconds();

}  // namespace anneal::ptx
