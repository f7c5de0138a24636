// A tactic of a plan for people.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace anneal::cuda {

// "64x64x64, 2x2 warps, 3 stages" for a product on tensor cores; "table of 256 values" for a
// function of one 8-bit number, on CPUs too; the algorithm for a library's kernel; "5 bytes" for a
// tactic of another form; empty for none. The bytes may be any.
std::string tactic_text(std::string_view kernel, std::span<const std::byte> tactic);

}  // namespace anneal::cuda
