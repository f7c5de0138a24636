// A layer as a product that cuBLASLt takes: D = epilogue(alpha A B + beta C), whose matrices are
// column-major. Pure functions; the library itself checks none of what they check.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cuda/api/cublas_lt_api.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// A matrix in memory: `columns` columns of `rows` adjacent elements, `leading` elements apart.
struct LtMatrix {
  size_t operand = 0;  // number of the input or, of D, of the output
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, leading = 0;
  int64_t batch_stride = 0;  // elements between the matrices of a batch; 0: all use the same
  uint32_t alignment = 1;    // bytes, up to 16: divides all distances between columns and matrices
  bool operator==(const LtMatrix&) const = default;
};

struct LtProblem {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;  // type of alpha and beta
  bool transpose_a = false, transpose_b = false;
  LtMatrix a, b, d;
  std::optional<LtMatrix> c;  // beta is 1; none: beta is 0
  int32_t batches = 1;
  float alpha = 1;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::optional<size_t> bias;  // an input: one element for each row of D
  bool rounds_bias = false;    // to D's type, of a constant of f32; else it has D's type
  bool operator==(const LtProblem&) const = default;
};

// What is asked for beside the arithmetic of the op: where it is not needed, there is no problem.
struct LtArithmetic {
  bool tf32 = false;  // f32 operands are rounded to 10 bits of mantissa
  // GELU is the library's approximation of the tanh form, or the bias is rounded to D's type.
  bool approximate = false;
};
// Or why cuBLASLt does not run the layer: a reason for people.
Result<LtProblem> lt_problem(const MatMul& op, const Request& request, LtArithmetic wanted);
// A convolution of 1x1 windows whose channels are adjacent is a product.
Result<LtProblem> lt_problem(const Conv& op, const Request& request, LtArithmetic wanted);

// Rules of cuBLASLt that it does not check itself when descriptors are made. Empty: it keeps them.
std::string broken_rule(const LtProblem& problem);

}  // namespace anneal::cuda
