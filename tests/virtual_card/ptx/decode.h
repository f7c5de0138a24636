// From statements to instructions that run.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "anneal/tests/virtual_card/ptx/text.h"
#include "anneal/tests/virtual_card/ptx/warp.h"

namespace anneal::ptx {

// addresses: of the module's variables in global memory, by name. Fails with Refused, naming line
// and instruction, on what the interpreter does not have.
Function decode(const TextModule& module, const TextFunction& function,
                const std::map<std::string, uint64_t>& addresses = {});

}  // namespace anneal::ptx
