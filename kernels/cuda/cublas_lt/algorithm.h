// The configuration of an algorithm of cuBLASLt, and its text in plans.
#pragma once
#include <cstdint>
#include <string>

#include "anneal/kernels/cuda/api/libraries.h"

namespace anneal::cuda {

// As cublasLtMatmulAlgoConfigGetAttribute() gives it.
struct LtAlgorithm {
  int32_t id = 0;
  uint32_t tile = 0;
  int32_t split = 1;  // parts of the depth; -1: the library divides it
  uint32_t reduction = 0, swizzle = 0, option = 0, stages = 0;
  uint16_t inner_shape = 0, cluster = 0;
  bool operator==(const LtAlgorithm&) const = default;
};

LtAlgorithm algorithm_of(const CublasLt& library, const cublasLtMatmulAlgo_t& bytes);
// "algorithm 66, tile 128x256, stages 64xAUTO, split 2": parts at their defaults are left out.
std::string text_of(const LtAlgorithm& algorithm);

// "128x256"; "#209" where we know no name of the number.
std::string tile_text(uint32_t tile);
std::string stages_text(uint32_t stages);

}  // namespace anneal::cuda
