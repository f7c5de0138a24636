// Objects of the fake cuBLASLt, whose functions check what the real library leaves unchecked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "anneal/kernels/cuda/api/cublas_lt_api.h"

// The types that cuda's declarations name.
namespace anneal::cuda {

struct cublasLtObject {
  int device = 0, architecture = 0;
};
struct cublasLtMatmulDescObject {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  uint32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint64_t bias = 0;
  std::optional<cudaDataType> bias_type = {};
};
struct cublasLtMatrixLayoutObject {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, batch_stride = 0;
  int32_t batches = 1;
};
struct cublasLtMatmulPreferenceObject {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

}  // namespace anneal::cuda

namespace anneal::fake_cublas_lt {

using namespace cuda;

// What an algorithm's 64 bytes hold. `check` is a digest of the rest, so that only bytes that the
// library gave are taken.
struct Algorithm {
  uint64_t check = 0;
  int32_t id = 0;
  uint32_t tile = 0;
  int32_t split = 1;
  uint32_t reduction = 0, swizzle = 0, option = 0, stages = 0;
  uint16_t inner_shape = 0, cluster = 0;
  uint16_t architecture = 0;
  // Bytes of alignment of A, B, C and D that it needs.
  uint8_t alignment_a = 1, alignment_b = 1, alignment_c = 1, alignment_d = 1;
  uint8_t padding[18] = {};
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

// A product and its matrices.
struct Problem {
  const cublasLtMatmulDescObject* product;
  const cublasLtMatrixLayoutObject *a, *b, *c, *d;

  uint64_t depth() const { return product->transpose_a != 0 ? a->rows : a->columns; }
};

}  // namespace anneal::fake_cublas_lt
