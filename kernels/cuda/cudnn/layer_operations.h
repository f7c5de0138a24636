// Layers as graphs of cuDNN's operations. Sizes must be constants. A refusal says what cuDNN, or
// its interface, cannot do.
#pragma once
#include <functional>
#include <utility>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/cudnn/operations.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// cuDNN's bools in memory may be packed, 8 in a byte; ours are one byte each.
inline constexpr const char* kNoBools = "bools in memory, which cuDNN may read packed";

// kRewritten: a residual is added before the bias, and an f32 constant that is broadcast, as a bias
// is, has the 16 bits of the product. cuDNN has compiled kernels for that; others it compiles
// itself.
enum class EpilogueForm : uint8_t { kRewritten, kAsGiven };

Result<Operations> conv_operations(const Conv& op, const Request& request, EpilogueForm form);
Result<Operations> conv_transpose_operations(const ConvTranspose& op, const Request& request,
                                             EpilogueForm form);
Result<Operations> matmul_operations(const MatMul& op, const Request& request, EpilogueForm form);
Result<Operations> attention_operations(const Attention& op, const Request& request,
                                        EpilogueForm form);

// Why a layer cannot be handed over whatever its op is; empty if it can.
std::string why_no_operations(const Request& request);
// Whether input `input` is absent, or constant zeros.
bool is_zero_or_absent(const Request& request, size_t input);

// How operands of the epilogue lie in a graph whose output has other axes than the layer's.
struct GraphAxes {
  Dims dims = {};  // of the output
  EpilogueForm form = EpilogueForm::kAsGiven;
  // Sizes and strides of an operand that was broadcast to the layer's output.
  std::function<Result<std::pair<Dims, Dims>>(const Dims& dims, const Dims& strides)> place;
};
// Adds the layer's epilogue, from the accumulator, and its output. op: whose output is it where
// there is no epilogue; kNoTensor in its y stands for that.
Result<Operations> with_epilogue(Operations graph, CudnnOperation op, const CudnnTensor& output,
                                 const Request& request, const GraphAxes& axes);

}  // namespace anneal::cuda
