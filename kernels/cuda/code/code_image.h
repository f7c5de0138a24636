// The machine code that an engine file keeps for its functions.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/code/sha256.h"

namespace anneal::cuda {

// One compiled program.
struct CodePart {
  int architecture = 0;
  Digest digest = {};              // of the program's text
  std::vector<std::string> names;  // of its functions, sorted
  std::vector<std::byte> cubin;
  bool operator==(const CodePart&) const = default;
};

// Little-endian. "ANNEALCU", u32 1 (the version), u32 parts; of each part u32 architecture, 32
// bytes digest, u32 names, of each u32 length and its bytes, u64 length of the cubin and its bytes.
std::vector<std::byte> code_image(std::span<const CodePart> parts);
// Fails with kIncompatiblePlan if these are no such bytes or a cubin is no whole ELF file. An empty
// image has no parts.
std::vector<CodePart> parts_of(std::span<const std::byte> image);

// Machine code of an architecture runs on those of its generation that are not older.
bool runs_on(int code_architecture, int device_architecture);

// The functions that the part was compiled from, if all are among these with the very same texts;
// else none.
std::vector<std::shared_ptr<Function>> functions_of(
    const CodePart& part, std::span<const std::shared_ptr<Function>> functions);

}  // namespace anneal::cuda
