// The parts of cuBLASLt that are called, declared here under its own names (cuda_api.h).
// tests/cuda/cublas_lt_api_test.cc compares them with the header of an installed toolkit.
#pragma once
#include <cstdint>

#include "anneal/kernels/cuda/api/cuda_api.h"

// NOLINTBEGIN(readability-identifier-naming)
namespace anneal::cuda {

using cublasLtHandle_t = struct cublasLtObject*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescObject*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutObject*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceObject*;

enum cublasStatus_t : unsigned {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cudaDataType : unsigned {
  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_8I = 3,
  CUDA_R_32I = 10,
  CUDA_R_16BF = 14,
};
enum cublasComputeType_t : unsigned {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasOperation_t : unsigned { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t : unsigned {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,
};
enum cublasLtReductionScheme_t : unsigned {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
};
enum cublasLtMatmulDescAttributes_t : unsigned {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};
enum cublasLtMatrixLayoutAttribute_t : unsigned {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtMatmulPreferenceAttributes_t : unsigned {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};
enum cublasLtMatmulAlgoConfigAttributes_t : unsigned {
  CUBLASLT_ALGO_CONFIG_ID = 0,
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
  CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
  CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
  CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
  CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,
  CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8,
};
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// X(function, result, parameters...)
#define ANNEAL_FOR_EACH_CUBLAS_LT_FUNCTION(X)                                                    \
  X(cublasLtGetVersion, size_t)                                                                  \
  X(cublasLtGetStatusName, const char*, cublasStatus_t)                                          \
  X(cublasLtCreate, cublasStatus_t, cublasLtHandle_t*)                                           \
  X(cublasLtDestroy, cublasStatus_t, cublasLtHandle_t)                                           \
  X(cublasLtMatmulDescCreate, cublasStatus_t, cublasLtMatmulDesc_t*, cublasComputeType_t,        \
    cudaDataType)                                                                                \
  X(cublasLtMatmulDescDestroy, cublasStatus_t, cublasLtMatmulDesc_t)                             \
  X(cublasLtMatmulDescSetAttribute, cublasStatus_t, cublasLtMatmulDesc_t,                        \
    cublasLtMatmulDescAttributes_t, const void*, size_t)                                         \
  X(cublasLtMatrixLayoutCreate, cublasStatus_t, cublasLtMatrixLayout_t*, cudaDataType, uint64_t, \
    uint64_t, int64_t)                                                                           \
  X(cublasLtMatrixLayoutDestroy, cublasStatus_t, cublasLtMatrixLayout_t)                         \
  X(cublasLtMatrixLayoutSetAttribute, cublasStatus_t, cublasLtMatrixLayout_t,                    \
    cublasLtMatrixLayoutAttribute_t, const void*, size_t)                                        \
  X(cublasLtMatmulPreferenceCreate, cublasStatus_t, cublasLtMatmulPreference_t*)                 \
  X(cublasLtMatmulPreferenceDestroy, cublasStatus_t, cublasLtMatmulPreference_t)                 \
  X(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t, cublasLtMatmulPreference_t,            \
    cublasLtMatmulPreferenceAttributes_t, const void*, size_t)                                   \
  X(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t, cublasLtHandle_t, cublasLtMatmulDesc_t,      \
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,                      \
    cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*,   \
    int*)                                                                                        \
  X(cublasLtMatmulAlgoCheck, cublasStatus_t, cublasLtHandle_t, cublasLtMatmulDesc_t,             \
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,                      \
    cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t*)       \
  X(cublasLtMatmulAlgoConfigGetAttribute, cublasStatus_t, const cublasLtMatmulAlgo_t*,           \
    cublasLtMatmulAlgoConfigAttributes_t, void*, size_t, size_t*)                                \
  X(cublasLtMatmul, cublasStatus_t, cublasLtHandle_t, cublasLtMatmulDesc_t, const void*,         \
    const void*, cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,       \
    const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,                          \
    const cublasLtMatmulAlgo_t*, void*, size_t, CUstream)

}  // namespace anneal::cuda
// NOLINTEND(readability-identifier-naming)
