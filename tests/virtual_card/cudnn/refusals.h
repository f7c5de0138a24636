// Descriptors that are wrong in one way each, for the fake library and for the real one.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/client.h"

namespace anneal::fake_cudnn {

// What NVIDIA's library does with it.
enum class Real : uint8_t { kRefuses, kTakes, kEndsTheProcess };

struct WrongDescriptor {
  const char* name;
  Attribute attribute;  // that the fake's message names
  Status status;        // of the fake
  Real real;
  std::function<Made(const Library&)> make;
};
std::vector<WrongDescriptor> wrong_descriptors();

// Graphs that both libraries take, by name.
struct RightGraph {
  const char* name;
  std::function<Made(const Library&)> make;
};
std::vector<RightGraph> right_graphs();

}  // namespace anneal::fake_cudnn
