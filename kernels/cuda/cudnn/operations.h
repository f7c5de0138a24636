// Operations: a graph for cuDNN as plain data, which needs no library. operation_graph.h hands it
// over.
//
// Descriptors and attributes of cuDNN that Anneal uses (a stand-in for cuDNN needs these):
//   TENSOR: UNIQUE_ID, DATA_TYPE, DIMENSIONS, STRIDES, BYTE_ALIGNMENT, IS_VIRTUAL, IS_BY_VALUE.
//     Unique ids count from 1 in the order of Operations::tensors. A tensor by value has one f32
//     element; its pointer in the variant pack is of host memory.
//   CONVOLUTION: COMP_TYPE, CONV_MODE (cross-correlation), SPATIAL_DIMS, DILATIONS, FILTER_STRIDES,
//     PRE_PADDINGS, POST_PADDINGS; OPERATION_CONVOLUTION_FORWARD: X, W, Y, CONV_DESC, ALPHA, BETA
//     (f32); OPERATION_CONVOLUTION_BACKWARD_DATA: DY, W, DX, CONV_DESC, ALPHA, BETA (transposed
//     convolution). x is [N,C,spatial...], w [K,C/groups,kernel...] in channels-last strides; two
//     or three spatial axes, of which the first is of size 1 for a convolution of one.
//   MATMUL: COMP_TYPE; OPERATION_MATMUL: ADESC, BDESC, CDESC, DESC; rank 3, or 4 in attention.
//   POINTWISE: MODE, MATH_PREC, RELU_LOWER_CLIP, RELU_UPPER_CLIP, SWISH_BETA, AXIS;
//     OPERATION_POINTWISE: PW_DESCRIPTOR, XDESC, BDESC, TDESC, YDESC. For BINARY_SELECT x is taken
//     where t is true, else b.
//   REDUCTION: OPERATOR (ADD, MAX), COMP_TYPE; OPERATION_REDUCTION: XDESC, YDESC, DESC. Attention
//     has an operation whose result, the softmax's statistics, nothing reads.
//   OPERATIONGRAPH: OPS. DEVICEPROP: JSON_REPRESENTATION, or DEVICE_ID (i32) on a card.
//   ENGINEHEUR: OPERATION_GRAPH, MODE (A, FALLBACK), DEVICEPROP, RESULTS (asked twice: first the
//     count, then ENGINECFG descriptors). ENGINECFG: ENGINE. ENGINE: GLOBAL_INDEX, NUMERICAL_NOTE,
//     BEHAVIOR_NOTE.
//   EXECUTION_PLAN: ENGINE_CONFIG and DEVICEPROP, or DEVICEPROP and JSON_REPRESENTATION (CHAR);
//     read: WORKSPACE_SIZE, JSON_REPRESENTATION (asked twice: size, bytes).
//   VARIANT_PACK: UNIQUE_IDS, DATA_POINTERS, WORKSPACE (a pointer, null if there is none).
//   cudnnBackendExecute(handle, plan, pack) after cudnnSetStream(handle, stream).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/core/dims.h"
#include "anneal/core/dtype.h"
#include "anneal/core/result.h"
#include "anneal/kernels/cuda/api/cudnn_api.h"

namespace anneal::cuda {

using TensorIndex = int;  // in Operations::tensors
inline constexpr TensorIndex kNoTensor = -1;

// What a tensor's memory is.
enum class TensorPlace : uint8_t {
  kInput,    // the layer's input `index`
  kOutput,   // the layer's output
  kRounded,  // `bytes`: the layer's constant input `index`, in 16 bits
  kVirtual,  // none: between two operations
  kValue,    // `value`, on the host
};

struct CudnnTensor {
  TensorPlace place = TensorPlace::kVirtual;
  int index = 0;
  float value = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes = {};
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  Dims dims = {}, strides = {};
  int64_t alignment = 16;  // bytes
};

enum class OperationKind : uint8_t { kConv, kConvTranspose, kMatMul, kPointwise, kReduction };

// y = what(a, b, t); unused tensors are kNoTensor.
struct CudnnOperation {
  OperationKind kind = OperationKind::kPointwise;
  cudnnDataType_t math = CUDNN_DATA_FLOAT;
  TensorIndex a = kNoTensor, b = kNoTensor, t = kNoTensor, y = kNoTensor;
  // kConv, kConvTranspose: one per spatial axis
  std::vector<int64_t> strides = {}, pads_begin = {}, pads_end = {}, dilations = {};
  // kPointwise
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  std::optional<float> lower = {}, upper = {};  // clips of RELU_FWD
  std::optional<float> beta = {};               // of SWISH_FWD
  std::optional<int64_t> axis = {};             // of GEN_INDEX
  // kReduction
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
};

struct Operations {
  std::vector<CudnnTensor> tensors = {};
  std::vector<CudnnOperation> operations = {};

  TensorIndex add(const CudnnTensor& tensor) {
    tensors.push_back(tensor);
    return static_cast<TensorIndex>(tensors.size()) - 1;
  }
  // A tensor between operations, dense and with the order of axes of `like`.
  TensorIndex add_virtual(const CudnnTensor& like, const Dims& dims, cudnnDataType_t dtype);
  // An f32 scalar of `rank` axes.
  TensorIndex add_value(float value, int rank);
};

// One operation a line: "%3 = conv(%1, %2) strides=[1,1] ...". For tests, and to tell two apart.
std::string to_string(const Operations& graph);

// Nullopt if cuDNN has none.
std::optional<cudnnDataType_t> cudnn_type_of(DataType dtype);

// Dense strides, with the axes in the order of `strides`: largest first.
Dims dense_in_order_of(const Dims& dims, const Dims& strides);
// Bytes, a power of two of at most 16, to which an operand's memory is aligned: that of slots and
// weights is to more. It assumes that a view of a slot begins at a multiple of its strides; where
// it does not, know_alignments() (kernels/cuda/backend.h) refuses the kernel.
int64_t alignment_of(const Dims& dims, const Dims& strides, DataType dtype);

}  // namespace anneal::cuda
