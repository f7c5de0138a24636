// The families of CUDA kernels, in order of preference: the list of backend.cc.
#pragma once
#include <span>

#include "anneal/kernels/kernel.h"

#define ANNEAL_CUDA_FAMILIES(X) \
  X(conv_depthwise)             \
  X(conv)                       \
  X(conv_transpose)             \
  X(coded_matmul)               \
  X(matmul)                     \
  X(attention)                  \
  X(pool)                       \
  X(resize)                     \
  X(sampling)                   \
  X(pointwise)                  \
  X(quantize)                   \
  X(recurrent)                  \
  X(linear_attention)           \
  X(reduce)                     \
  X(cumulative)                 \
  X(topk)                       \
  X(softmax)                    \
  X(normalize)                  \
  X(movement)                   \
  X(assembly)                   \
  X(gather)                     \
  X(scatter)                    \
  X(select)                     \
  X(unique)                     \
  X(nms)                        \
  X(custom)                     \
  X(cudnn)                      \
  X(cublas_lt)

namespace anneal::cuda {

#define ANNEAL_DECLARE_FAMILY(name) std::span<const KernelEntry> name##_entries();
ANNEAL_CUDA_FAMILIES(ANNEAL_DECLARE_FAMILY)
#undef ANNEAL_DECLARE_FAMILY

}  // namespace anneal::cuda
