// Compiler: turns the text of a program (code.h) into an image that a driver loads. NVRTC does it
// for GPUs, and the host's compiler for the emulated device.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace anneal::cuda {

class Compiler {
 public:
  virtual ~Compiler() = default;
  // The argument of cuModuleLoadData(). Fails with kDevice if there is no compiler, with kInternal
  // and the compiler's words and the lines they name if the text is wrong. Thread-safe.
  virtual std::vector<std::byte> compile(const std::string& program, int architecture) const = 0;
  // Everything beside the text and the architecture that the image depends on: the compiler's name,
  // version and flags.
  virtual std::string identity() const = 0;
};

}  // namespace anneal::cuda
