// What machine code for a card says of itself. A cubin is an ELF file.
#pragma once
#include <cstddef>
#include <span>

namespace anneal::cuda {

// Whether the file is an ELF file of 64 bits whose parts all lie inside it.
bool is_whole_cubin(std::span<const std::byte> cubin);

}  // namespace anneal::cuda
