// Operation graphs of the fake cuDNN: tensors by their unique ids, and operations in an order in
// which each comes after those whose results it takes.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/cudnn/descriptor.h"

namespace anneal::fake_cudnn {

struct Tensor {
  int64_t uid = 0;
  DataType type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  int64_t alignment = 16;
  bool is_virtual = false, is_by_value = false;
  bool operator==(const Tensor&) const = default;

  int64_t count() const;
  bool is_dense() const;  // its elements lie without gaps, in any order of the dimensions
};
size_t bytes_of(DataType type);

// Of any type: each uses its part.
struct Operation {
  DescriptorType type = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  DataType compute = CUDNN_DATA_FLOAT;
  std::map<std::string, int64_t> inputs;  // "x", "w", "b", ...: the uids
  std::map<std::string, int64_t> outputs;
  uint32_t mode = 0;  // of pointwise operations, convolutions and reductions
  std::vector<int64_t> pre, post, strides, dilations;
  double alpha = 1, beta = 0;              // of pointwise operations: the factors of x and b
  double lower = 0, upper = 0, slope = 0;  // of CUDNN_POINTWISE_RELU_FWD
  double factor = 1;                       // the alpha or beta of an activation
  int64_t axis = 0;
};

struct OperationGraph {
  std::map<int64_t, Tensor> tensors;
  std::vector<Operation> operations;
};

// What finalized descriptors mean.
struct TensorMeaning : Meaning {
  Tensor tensor;
};
struct ConvolutionMeaning : Meaning {
  Operation part;
};
struct OperationMeaning : Meaning {
  OperationGraph part;  // one operation, and its tensors
};
struct GraphMeaning : Meaning {
  OperationGraph graph;
};

// For descriptors of tensors, operations and graphs, and of what operations are made of, whose
// attributes are set. Fails with Failure, which names the attribute.
std::shared_ptr<const Meaning> graph_meaning_of(const Descriptor& descriptor);

// The tensors as the real library writes them, in its order of keys.
nlohmann::ordered_json json_of(const OperationGraph& graph);
// Fails with Failure. The shapes are those of a graph that was finalized.
OperationGraph graph_of(const nlohmann::ordered_json& json);

}  // namespace anneal::fake_cudnn
