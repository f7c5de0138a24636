// The part of cuDNN's backend interface that the fake library has: our own declarations, compared
// with NVIDIA's header by abi_test.cc where that is installed. They are not those of the product
// (kernels/cuda/api), so that a mistake in one of the two shows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/kernels/cuda/api/cuda_api.h"

// NOLINTBEGIN(readability-identifier-naming)
namespace anneal::fake_cudnn {

#define FAKE_CUDNN_STATUSES(X)                       \
  X(CUDNN_STATUS_SUCCESS, 0)                         \
  X(CUDNN_STATUS_NOT_INITIALIZED, 1001)              \
  X(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 1002)  \
  X(CUDNN_STATUS_BAD_PARAM, 2000)                    \
  X(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)       \
  X(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, 2003) \
  X(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)      \
  X(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, 2005)       \
  X(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, 2006)  \
  X(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, 2007)    \
  X(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)     \
  X(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, 2009) \
  X(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)     \
  X(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, 2012)    \
  X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                \
  X(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, 3001)  \
  X(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, 3007)  \
  X(CUDNN_STATUS_INTERNAL_ERROR, 4000)               \
  X(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, 5001)

#define FAKE_CUDNN_DATA_TYPES(X) \
  X(CUDNN_DATA_FLOAT, 0)         \
  X(CUDNN_DATA_DOUBLE, 1)        \
  X(CUDNN_DATA_HALF, 2)          \
  X(CUDNN_DATA_INT8, 3)          \
  X(CUDNN_DATA_INT32, 4)         \
  X(CUDNN_DATA_UINT8, 6)         \
  X(CUDNN_DATA_BFLOAT16, 9)      \
  X(CUDNN_DATA_INT64, 10)        \
  X(CUDNN_DATA_BOOLEAN, 11)      \
  X(CUDNN_DATA_FP8_E4M3, 12)     \
  X(CUDNN_DATA_FP8_E5M2, 13)

#define FAKE_CUDNN_POINTWISE_MODES(X)          \
  X(CUDNN_POINTWISE_ADD, 0)                    \
  X(CUDNN_POINTWISE_MUL, 1)                    \
  X(CUDNN_POINTWISE_MIN, 2)                    \
  X(CUDNN_POINTWISE_MAX, 3)                    \
  X(CUDNN_POINTWISE_SQRT, 4)                   \
  X(CUDNN_POINTWISE_ADD_SQUARE, 5)             \
  X(CUDNN_POINTWISE_DIV, 6)                    \
  X(CUDNN_POINTWISE_MOD, 7)                    \
  X(CUDNN_POINTWISE_POW, 8)                    \
  X(CUDNN_POINTWISE_SUB, 9)                    \
  X(CUDNN_POINTWISE_ABS, 10)                   \
  X(CUDNN_POINTWISE_CEIL, 11)                  \
  X(CUDNN_POINTWISE_COS, 12)                   \
  X(CUDNN_POINTWISE_EXP, 13)                   \
  X(CUDNN_POINTWISE_FLOOR, 14)                 \
  X(CUDNN_POINTWISE_LOG, 15)                   \
  X(CUDNN_POINTWISE_NEG, 16)                   \
  X(CUDNN_POINTWISE_RSQRT, 17)                 \
  X(CUDNN_POINTWISE_SIN, 18)                   \
  X(CUDNN_POINTWISE_TAN, 19)                   \
  X(CUDNN_POINTWISE_ERF, 20)                   \
  X(CUDNN_POINTWISE_IDENTITY, 21)              \
  X(CUDNN_POINTWISE_RECIPROCAL, 22)            \
  X(CUDNN_POINTWISE_RELU_FWD, 100)             \
  X(CUDNN_POINTWISE_TANH_FWD, 101)             \
  X(CUDNN_POINTWISE_SIGMOID_FWD, 102)          \
  X(CUDNN_POINTWISE_ELU_FWD, 103)              \
  X(CUDNN_POINTWISE_GELU_FWD, 104)             \
  X(CUDNN_POINTWISE_SOFTPLUS_FWD, 105)         \
  X(CUDNN_POINTWISE_SWISH_FWD, 106)            \
  X(CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, 107) \
  X(CUDNN_POINTWISE_CMP_EQ, 300)               \
  X(CUDNN_POINTWISE_CMP_NEQ, 301)              \
  X(CUDNN_POINTWISE_CMP_GT, 302)               \
  X(CUDNN_POINTWISE_CMP_GE, 303)               \
  X(CUDNN_POINTWISE_CMP_LT, 304)               \
  X(CUDNN_POINTWISE_CMP_LE, 305)               \
  X(CUDNN_POINTWISE_LOGICAL_AND, 400)          \
  X(CUDNN_POINTWISE_LOGICAL_OR, 401)           \
  X(CUDNN_POINTWISE_LOGICAL_NOT, 402)          \
  X(CUDNN_POINTWISE_GEN_INDEX, 501)            \
  X(CUDNN_POINTWISE_BINARY_SELECT, 601)

#define FAKE_CUDNN_REDUCTION_OPERATORS(X) \
  X(CUDNN_REDUCE_TENSOR_ADD, 0)           \
  X(CUDNN_REDUCE_TENSOR_MUL, 1)           \
  X(CUDNN_REDUCE_TENSOR_MIN, 2)           \
  X(CUDNN_REDUCE_TENSOR_MAX, 3)           \
  X(CUDNN_REDUCE_TENSOR_AMAX, 4)          \
  X(CUDNN_REDUCE_TENSOR_AVG, 5)           \
  X(CUDNN_REDUCE_TENSOR_NORM1, 6)         \
  X(CUDNN_REDUCE_TENSOR_NORM2, 7)

#define FAKE_CUDNN_ATTRIBUTE_TYPES(X)       \
  X(CUDNN_TYPE_HANDLE, 0)                   \
  X(CUDNN_TYPE_DATA_TYPE, 1)                \
  X(CUDNN_TYPE_BOOLEAN, 2)                  \
  X(CUDNN_TYPE_INT64, 3)                    \
  X(CUDNN_TYPE_FLOAT, 4)                    \
  X(CUDNN_TYPE_DOUBLE, 5)                   \
  X(CUDNN_TYPE_VOID_PTR, 6)                 \
  X(CUDNN_TYPE_CONVOLUTION_MODE, 7)         \
  X(CUDNN_TYPE_HEUR_MODE, 8)                \
  X(CUDNN_TYPE_KNOB_TYPE, 9)                \
  X(CUDNN_TYPE_NUMERICAL_NOTE, 11)          \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)          \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)      \
  X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18) \
  X(CUDNN_TYPE_BEHAVIOR_NOTE, 19)           \
  X(CUDNN_TYPE_TENSOR_REORDERING_MODE, 20)  \
  X(CUDNN_TYPE_RESAMPLE_MODE, 21)           \
  X(CUDNN_TYPE_PADDING_MODE, 22)            \
  X(CUDNN_TYPE_INT32, 23)                   \
  X(CUDNN_TYPE_CHAR, 24)                    \
  X(CUDNN_TYPE_NORM_MODE, 27)               \
  X(CUDNN_TYPE_NORM_FWD_PHASE, 28)

#define FAKE_CUDNN_ATTRIBUTES(X)                              \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                             \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                        \
  X(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 3)                  \
  X(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 4)                  \
  X(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 5)            \
  X(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 6)                        \
  X(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 7)                    \
  X(CUDNN_ATTR_POINTWISE_SWISH_BETA, 8)                       \
  X(CUDNN_ATTR_POINTWISE_AXIS, 9)                             \
  X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                    \
  X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                    \
  X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                    \
  X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)               \
  X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                \
  X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                 \
  X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                 \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                          \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)               \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                       \
  X(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, 203)               \
  X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                    \
  X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                         \
  X(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 302)                   \
  X(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, 303)                 \
  X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                    \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)             \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)            \
  X(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)       \
  X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                \
  X(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 600)                    \
  X(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 601)                   \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)      \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)       \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)  \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)          \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)          \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)          \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)     \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)      \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708) \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)         \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)        \
  X(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)        \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)        \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                \
  X(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 754)               \
  X(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 755)               \
  X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                \
  X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                    \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                       \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                    \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                         \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                        \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                           \
  X(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 904)                      \
  X(CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, 905)              \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                         \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                        \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                       \
  X(CUDNN_ATTR_TENSOR_REORDERING_MODE, 909)                   \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                 \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)              \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                  \
  X(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1300)                  \
  X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                     \
  X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                   \
  X(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)                    \
  X(CUDNN_ATTR_ENGINE_DEVICEPROP, 1307)                       \
  X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                        \
  X(CUDNN_ATTR_MATMUL_PADDING_VALUE, 1503)                    \
  X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                  \
  X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                  \
  X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                  \
  X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                   \
  X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                      \
  X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                     \
  X(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, 1602)              \
  X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)               \
  X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)               \
  X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                \
  X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                 \
  X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                 \
  X(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, 2700)                    \
  X(CUDNN_ATTR_DEVICEPROP_HANDLE, 2701)                       \
  X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)          \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, 2800)                \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 2801)                \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 2802)                \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, 2803)                \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, 2804)            \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, 2805)            \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, 2809)        \
  X(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, 2810)

#define FAKE_CUDNN_DESCRIPTOR_TYPES(X)                                \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                            \
  X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                          \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                               \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                            \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                           \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                       \
  X(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 7)                          \
  X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)       \
  X(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12) \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                 \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                      \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                        \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                              \
  X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                              \
  X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                    \
  X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                           \
  X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                 \
  X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                   \
  X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                          \
  X(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, 41)

#define FAKE_CUDNN_NUMERICAL_NOTES(X)                    \
  X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                 \
  X(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)         \
  X(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2) \
  X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)            \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD, 5)                    \
  X(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, 6)

#define FAKE_CUDNN_BEHAVIOR_NOTES(X)            \
  X(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0) \
  X(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API, 3)

#define FAKE_CUDNN_KNOB_TYPES(X)  \
  X(CUDNN_KNOB_TYPE_TILE_SIZE, 2) \
  X(CUDNN_KNOB_TYPE_STAGES, 14)

#define FAKE_CUDNN_HEURISTIC_MODES(X) \
  X(CUDNN_HEUR_MODE_INSTANT, 0)       \
  X(CUDNN_HEUR_MODE_B, 1)             \
  X(CUDNN_HEUR_MODE_FALLBACK, 2)      \
  X(CUDNN_HEUR_MODE_A, 3)

#define X(name, value) name = (value),
enum Status : uint32_t { FAKE_CUDNN_STATUSES(X) };
enum DataType : uint32_t { FAKE_CUDNN_DATA_TYPES(X) };
enum PointwiseMode : uint32_t { FAKE_CUDNN_POINTWISE_MODES(X) };
enum ReductionOperator : uint32_t { FAKE_CUDNN_REDUCTION_OPERATORS(X) };
enum AttributeType : uint32_t { FAKE_CUDNN_ATTRIBUTE_TYPES(X) };
enum Attribute : uint32_t { FAKE_CUDNN_ATTRIBUTES(X) };
enum DescriptorType : uint32_t { FAKE_CUDNN_DESCRIPTOR_TYPES(X) };
enum NumericalNote : uint32_t { FAKE_CUDNN_NUMERICAL_NOTES(X) };
enum BehaviorNote : uint32_t { FAKE_CUDNN_BEHAVIOR_NOTES(X) };
enum KnobType : uint32_t { FAKE_CUDNN_KNOB_TYPES(X) };
enum HeuristicMode : uint32_t { FAKE_CUDNN_HEURISTIC_MODES(X) };
#undef X
enum ConvolutionMode : uint32_t { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 };

using Handle = struct HandleObject*;
using BackendDescriptor = void*;
inline constexpr int64_t kMostDims = 8;

// X(function, result, parameters...)
#define FAKE_CUDNN_FUNCTIONS(X)                                                             \
  X(cudnnGetVersion, size_t)                                                                \
  X(cudnnGetErrorString, const char*, Status)                                               \
  X(cudnnGetLastErrorString, void, char*, size_t)                                           \
  X(cudnnGraphVersionCheck, Status)                                                         \
  X(cudnnCreate, Status, Handle*)                                                           \
  X(cudnnDestroy, Status, Handle)                                                           \
  X(cudnnSetStream, Status, Handle, cuda::CUstream)                                         \
  X(cudnnGetStream, Status, Handle, cuda::CUstream*)                                        \
  X(cudnnBackendCreateDescriptor, Status, DescriptorType, BackendDescriptor*)               \
  X(cudnnBackendDestroyDescriptor, Status, BackendDescriptor)                               \
  X(cudnnBackendFinalize, Status, BackendDescriptor)                                        \
  X(cudnnBackendSetAttribute, Status, BackendDescriptor, Attribute, AttributeType, int64_t, \
    const void*)                                                                            \
  X(cudnnBackendGetAttribute, Status, BackendDescriptor, Attribute, AttributeType, int64_t, \
    int64_t*, void*)                                                                        \
  X(cudnnBackendExecute, Status, Handle, BackendDescriptor, BackendDescriptor)

// "CUDNN_ATTR_TENSOR_STRIDES"; "(none)": the fake has none of this value
const char* name_of(Attribute attribute);
const char* name_of(DescriptorType type);
const char* name_of(DataType type);

}  // namespace anneal::fake_cudnn
// NOLINTEND(readability-identifier-naming)
