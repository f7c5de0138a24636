// Loops that reach the ceilings of a CPU core: arithmetic in registers, and streams of loads and
// stores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "anneal/core/isa.h"
#include "anneal/engine/onnx/roofline/plan_work.h"

namespace anneal {

// One way to multiply and add.
struct PeakLoop {
  ProductType type = ProductType::kF32;
  void (*run)(int64_t rounds) = nullptr;
  double operations = 0;  // of one round
};
// Those that the fast kernels use on this instruction set, one for each type.
std::span<const PeakLoop> peak_loops(Isa isa, bool has_bf16);

// Bytes are a multiple of kStreamBlock, and addresses of 64.
inline constexpr size_t kStreamBlock = 1024;
struct StreamLoops {
  void (*read)(const std::byte* from, size_t bytes) = nullptr;
  void (*copy)(std::byte* to, const std::byte* from, size_t bytes) = nullptr;
};
StreamLoops stream_loops(Isa isa);

}  // namespace anneal
