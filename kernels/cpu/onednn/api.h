// The part of oneDNN 2's C interface that the adapter calls, declared here so that a build does not
// need its headers. tests/kernels/onednn_test.cc compares the declarations with installed headers.
// Only onednn.cc and that test include this.
#pragma once
#include <cstddef>
#include <cstdint>

namespace anneal::cpu::onednn {

using Status = int;  // 0: success
using DnnDims = int64_t[12];

struct DnnEngine;
struct DnnStream;
struct DnnMemory;
struct DnnPrimitiveDesc;
struct DnnPrimitive;
struct DnnAttributes;
struct DnnPostOps;

// Structs whose size is part of the interface; their contents are the library's.
template <size_t bytes>
struct alignas(8) Opaque {
  std::byte content[bytes];
};
using MemoryDesc = Opaque<696>;
using ConvolutionDesc = Opaque<5976>;
using MatMulDesc = Opaque<2800>;
using PoolingDesc = Opaque<3288>;

struct ExecArg {
  int arg;
  DnnMemory* memory;
};
struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

enum : int { kStatusSuccess = 0 };
enum : int { kEngineCpu = 1 };
enum : int { kTypeBF16 = 2, kTypeF32 = 3, kTypeS32 = 4, kTypeS8 = 5, kTypeU8 = 6 };
enum : int { kTagAny = 1 };
enum : int { kForwardInference = 96 };
enum : int { kConvolutionDirect = 1, kConvolutionWinograd = 2 };
enum : int { kBinaryAdd = 0x1fff0, kBinaryMul = 0x1fff1 };
enum : int { kEltwiseRound = 0x40, kEltwiseLinear = 0x7f, kEltwiseClip = 0xff };
enum : int { kPoolingMax = 0x1ff };
enum : int { kScratchpadUser = 1 };
enum : int {
  kQueryImplementation = 8,
  kQuerySource = 129,
  kQueryWeights = 131,
  kQueryOutput = 133,
  kQueryScratchpad = 136
};
enum : int { kArgSource = 1, kArgSource1 = 2, kArgOutput = 17, kArgWeights = 33, kArgBias = 41 };
enum : int { kArgScratchpad = 80, kArgPostOp = 16384 };  // of post-op i: (i + 1) * kArgPostOp
enum : unsigned { kStreamDefault = 1, kRuntimeSequential = 1, kRuntimeOpenMp = 2 };
enum : int { kIsaAll = 0, kIsaAvx2 = 0x7, kIsaAvx512 = 0x27, kIsaVnni = 0x67, kIsaBf16 = 0xe7 };

// X(function, result, arguments...)
#define ANNEAL_FOR_EACH_DNNL_FUNCTION(X)                                                           \
  X(dnnl_version, const Version*)                                                                  \
  X(dnnl_set_max_cpu_isa, Status, int)                                                             \
  X(dnnl_get_effective_cpu_isa, int)                                                               \
  X(dnnl_engine_create, Status, DnnEngine**, int, size_t)                                          \
  X(dnnl_stream_create, Status, DnnStream**, DnnEngine*, unsigned)                                 \
  X(dnnl_stream_destroy, Status, DnnStream*)                                                       \
  X(dnnl_memory_desc_init_by_strides, Status, MemoryDesc*, int, const int64_t*, int,               \
    const int64_t*)                                                                                \
  X(dnnl_memory_desc_init_by_tag, Status, MemoryDesc*, int, const int64_t*, int, int)              \
  X(dnnl_memory_desc_get_size, size_t, const MemoryDesc*)                                          \
  X(dnnl_memory_desc_equal, int, const MemoryDesc*, const MemoryDesc*)                             \
  X(dnnl_memory_create, Status, DnnMemory**, const MemoryDesc*, DnnEngine*, void*)                 \
  X(dnnl_memory_set_data_handle, Status, DnnMemory*, void*)                                        \
  X(dnnl_memory_destroy, Status, DnnMemory*)                                                       \
  X(dnnl_dilated_convolution_forward_desc_init, Status, ConvolutionDesc*, int, int,                \
    const MemoryDesc*, const MemoryDesc*, const MemoryDesc*, const MemoryDesc*, const int64_t*,    \
    const int64_t*, const int64_t*, const int64_t*)                                                \
  X(dnnl_matmul_desc_init, Status, MatMulDesc*, const MemoryDesc*, const MemoryDesc*,              \
    const MemoryDesc*, const MemoryDesc*)                                                          \
  X(dnnl_pooling_v2_forward_desc_init, Status, PoolingDesc*, int, int, const MemoryDesc*,          \
    const MemoryDesc*, const int64_t*, const int64_t*, const int64_t*, const int64_t*,             \
    const int64_t*)                                                                                \
  X(dnnl_primitive_attr_create, Status, DnnAttributes**)                                           \
  X(dnnl_primitive_attr_destroy, Status, DnnAttributes*)                                           \
  X(dnnl_primitive_attr_set_scratchpad_mode, Status, DnnAttributes*, int)                          \
  X(dnnl_primitive_attr_set_zero_points, Status, DnnAttributes*, int, int64_t, int,                \
    const int32_t*)                                                                                \
  X(dnnl_primitive_attr_set_post_ops, Status, DnnAttributes*, const DnnPostOps*)                   \
  X(dnnl_post_ops_create, Status, DnnPostOps**)                                                    \
  X(dnnl_post_ops_destroy, Status, DnnPostOps*)                                                    \
  X(dnnl_post_ops_append_sum, Status, DnnPostOps*, float)                                          \
  X(dnnl_post_ops_append_eltwise, Status, DnnPostOps*, float, int, float, float)                   \
  X(dnnl_post_ops_append_binary, Status, DnnPostOps*, int, const MemoryDesc*)                      \
  X(dnnl_primitive_desc_create, Status, DnnPrimitiveDesc**, const void*, const DnnAttributes*,     \
    DnnEngine*, const DnnPrimitiveDesc*)                                                           \
  X(dnnl_reorder_primitive_desc_create, Status, DnnPrimitiveDesc**, const MemoryDesc*, DnnEngine*, \
    const MemoryDesc*, DnnEngine*, const DnnAttributes*)                                           \
  X(dnnl_primitive_desc_destroy, Status, DnnPrimitiveDesc*)                                        \
  X(dnnl_primitive_desc_query, Status, const DnnPrimitiveDesc*, int, int, void*)                   \
  X(dnnl_primitive_desc_query_md, const MemoryDesc*, const DnnPrimitiveDesc*, int, int)            \
  X(dnnl_primitive_create, Status, DnnPrimitive**, const DnnPrimitiveDesc*)                        \
  X(dnnl_primitive_execute, Status, const DnnPrimitive*, DnnStream*, int, const ExecArg*)          \
  X(dnnl_primitive_destroy, Status, DnnPrimitive*)

// The library's functions. Those of OpenMP are null if the library runs without it.
struct Api {
#define X(function, result, ...) result (*function)(__VA_ARGS__) = nullptr;
  ANNEAL_FOR_EACH_DNNL_FUNCTION(X)
#undef X
  int (*omp_get_max_threads)() = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
};

}  // namespace anneal::cpu::onednn
