// The C++ compiler of the host, for the emulated device: ANNEAL_HOST_CXX, else the first of c++,
// g++ and clang++ in PATH.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "anneal/kernels/cuda/code/compiler.h"

namespace anneal::cuda {

// ANNEAL_EMULATED_CHECKS=all in the environment, as opposed to =bounds, makes functions that report
// every access to shared memory, to find races and elements that no thread wrote. Functions that
// count report by emulated_counts() (emulated/driver.h), and are slower.
const Compiler& host_compiler(bool counts = false);

// An image that it made: shared objects, and the program they are of.
struct HostImage {
  std::string_view program;
  std::vector<std::string_view> objects;
};
// REQUIRES: an image of host_compiler(). Fails with kDevice if it is something else.
HostImage read_host_image(const void* image);

}  // namespace anneal::cuda
