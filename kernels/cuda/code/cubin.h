// Resources of functions in a cubin, the machine code of a GPU. A cubin is an ELF file.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace anneal::cuda {

// Whether the file is an ELF file of 64 bits whose parts all lie inside it.
bool is_whole_cubin(std::span<const std::byte> cubin);

struct FunctionResources {
  std::string name;
  int registers = 0;     // of a thread
  int stack_bytes = 0;   // of a thread, in device memory: spilled registers and local arrays
  int shared_bytes = 0;  // of a block, beside what a launch asks for
  int most_threads = 0;  // in a block; 0: not said
  int code_bytes = 0;
  bool operator==(const FunctionResources&) const = default;
};
// Of the functions that can be launched, by name. REQUIRES: is_whole_cubin(cubin).
std::vector<FunctionResources> resources_of(std::span<const std::byte> cubin);

}  // namespace anneal::cuda
