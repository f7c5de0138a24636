// Operations in cuDNN's own descriptors.
#pragma once
#include <vector>

#include "anneal/kernels/cuda/cudnn/descriptor.h"
#include "anneal/kernels/cuda/cudnn/operations.h"

namespace anneal::cuda {

struct OperationGraph {
  std::vector<Descriptor> parts;  // tensors and operations, which the graph refers to
  Descriptor graph;
};
// The result is of no use if the calls failed.
OperationGraph make_operation_graph(CudnnCalls& calls, const Operations& operations);

// The name of a tensor in plans and variant packs.
inline int64_t unique_id(size_t tensor) { return static_cast<int64_t>(tensor) + 1; }

}  // namespace anneal::cuda
