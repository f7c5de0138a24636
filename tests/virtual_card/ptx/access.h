// Loads, stores and atomic operations, which the decoder finds by their words.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/tests/virtual_card/ptx/warp.h"

namespace anneal::ptx {

enum class Space : uint8_t { kGlobal, kShared, kLocal };
enum class Access : uint8_t { kLoad, kStore, kAtomic };

// "ld" or "st" and its space. Instruction::parameters: {elements, element bytes, register bytes,
// a sum of the two below}; Instruction::at: the address, then the elements' registers.
using Run = void (*)(Warp& warp, const Instruction& instruction);
Run load(Space space, bool is_wide_address);
Run store(Space space, bool is_wide_address);
inline constexpr uint8_t kIsSigned = 1;    // a loaded element keeps its sign
inline constexpr uint8_t kIsReadOnly = 2;  // ".nc": no write during the launch

// "atom" and "red". Instruction::at: the address, the result, the operands; parameters: {the
// operation's number, the type's, is in shared memory + 2 * has a wide address, has a result}.
void update_memory(Warp& warp, const Instruction& instruction);
struct AtomicType {
  uint8_t number = 0, bytes = 0;  // no bytes: there is no such type
};
AtomicType atomic_type(std::string_view word);
int atomic_operation(std::string_view word);  // -1: there is none of this name
// Whether the manual has the operation for the type.
bool is_atomic_allowed(int operation, AtomicType type);

// Of the lane's local memory.
std::byte* checked_local(Warp& warp, uint64_t address, uint32_t bytes, uint32_t lane,
                         Access access);
// The host's memory for these bytes of global memory. Fails with Fault as the card would.
std::byte* checked_global(Warp& warp, uint64_t address, uint32_t bytes, Access access);
// Of shared memory, with the races of the access.
std::byte* checked_shared(Warp& warp, uint64_t address, uint32_t bytes, uint32_t lane,
                          Access access);

}  // namespace anneal::ptx
