// The machine code that an engine file keeps for its functions.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/hash/sha256.h"
#include "anneal/kernels/cuda/code/code.h"

namespace anneal::cuda {

// One compiled program.
struct CodePart {
  int architecture = 0;
  std::vector<std::string> names;  // of its functions, sorted
  std::vector<Digest> digests;     // of each function's text with its headers
  std::vector<std::byte> cubin;
  bool operator==(const CodePart&) const = default;
};

// Of these functions, with their names and digests, and still without machine code.
CodePart part_for(std::span<const std::shared_ptr<Function>> functions, int architecture);

// Little-endian. "ANNEALCU", u32 2 (the version), u32 parts; of each part u32 architecture, u32
// functions, of each u32 length of its name, the name and 32 bytes digest, u64 length of the cubin
// and its bytes.
std::vector<std::byte> code_image(std::span<const CodePart> parts);
// Fails with kIncompatiblePlan if these are no such bytes or a cubin is no whole ELF file. An empty
// image has no parts.
std::vector<CodePart> parts_of(std::span<const std::byte> image);

// Machine code of an architecture runs on those of its generation that are not older.
bool runs_on(int code_architecture, int device_architecture);

// Those of the functions that the part was compiled from, with the very same texts. The part may
// have others: a plan's kernels and those that take their places are not made together.
std::vector<std::shared_ptr<Function>> functions_of(
    const CodePart& part, std::span<const std::shared_ptr<Function>> functions);

}  // namespace anneal::cuda
