// In which strides products read their weights.
#include <numeric>

#include "anneal/graph/op/ops.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"

namespace anneal::cuda {
namespace {

// Bytes [K, N] with the depth fastest: what lies along the lines would be turned in registers each
// time it is read.
std::optional<Shape> matmul_mma_strides(const Request& request, size_t input) {
  const Operand& b = request.inputs[1];
  const int rank = b.type.shape.rank();
  if (input != 1 || b.constant == nullptr || size_of(b.type.dtype) != 1 || rank < 2 ||
      std::get<MatMul>(request.op).transpose_b)
    return std::nullopt;
  const Size depth = b.type.shape[rank - 2];
  if (!depth.known() || depth.value() % 4 != 0) return std::nullopt;
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order.back());
  return dense_strides(b, order);
}

constexpr InputLayout kMatmulLayouts[] = {{"cuda.matmul.mma", matmul_mma_strides},
                                          {"cublaslt.matmul", matmul_mma_strides}};

}  // namespace

std::span<const InputLayout> matmul_input_layouts() { return kMatmulLayouts; }

}  // namespace anneal::cuda
