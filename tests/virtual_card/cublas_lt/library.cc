// A libcublasLt.so.13 of the functions that Anneal calls. It computes on the virtual card, and is
// strict: a leading dimension, alignment, workspace, attribute or algorithm that the manual does
// not allow is refused, and stderr says why. No part of it is NVIDIA's.
//
// ANNEAL_FAKE_CUBLAS_LT_VERSION: its version (130100).
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/cublas_lt/product.h"
#include "anneal/tests/virtual_card/cublas_lt/rules.h"
#include "anneal/tests/virtual_card/library_work.h"

namespace anneal::fake_cublas_lt {
namespace {

using virtual_card::LibraryMemory;

struct LtRefusal {
  cublasStatus_t status;
  std::string why;
};
[[noreturn]] void refuse(cublasStatus_t status, std::string why) {
  throw LtRefusal{status, std::move(why)};
}

template <class Body>
cublasStatus_t call(const char* name, const Body& body) {
  try {
    body();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const LtRefusal& refusal) {
    std::fprintf(stderr, "fake cuBLASLt: %s: %s\n", name, refusal.why.c_str());
    return refusal.status;
  } catch (const std::bad_alloc&) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
}

// Objects that were made and not destroyed. Threads may call while the process ends.
struct Live {
  std::mutex mutex;
  std::set<const void*> objects;
};
Live& live() {
  static Live* const only = new Live;
  return *only;
}
template <class T>
void keep(T** to, T* made) {
  const std::lock_guard lock(live().mutex);
  live().objects.insert(made);
  *to = made;
}
template <class T>
T& object(T* made, const char* what) {
  const std::lock_guard lock(live().mutex);
  if (!live().objects.contains(made))
    refuse(CUBLAS_STATUS_INVALID_VALUE,
           fmt::format("a {} that was destroyed, or never made", what));
  return *made;
}
template <class T>
void destroy(T* made, const char* what) {
  object(made, what);
  const std::lock_guard lock(live().mutex);
  live().objects.erase(made);
  delete made;
}

template <class T>
void take(const void* from, size_t bytes, T& to) {
  if (from == nullptr || bytes != sizeof(T))
    refuse(CUBLAS_STATUS_INVALID_VALUE,
           fmt::format("an attribute of {} bytes, and {} are its size", bytes, sizeof(T)));
  std::memcpy(&to, from, sizeof(T));
}

template <class F>
F& card(const char* name) {
  F* const found = virtual_card::function_of_card<F>(name);
  if (found == nullptr) refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no virtual card");
  return *found;
}
int current_device() {
  return card<decltype(virtual_card::virtual_card_current_device)>("virtual_card_current_device")();
}

const cublasLtObject& handle_of(cublasLtHandle_t handle) {
  const cublasLtObject& of = object(handle, "handle");
  if (of.device != current_device())
    refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the context of another device, or of none, is current");
  return of;
}

Problem problem_of(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const Problem problem{&object(product, "product"), &object(a, "layout"), &object(b, "layout"),
                        &object(c, "layout"), &object(d, "layout")};
  if (std::string why = why_refused(problem); !why.empty())
    refuse(CUBLAS_STATUS_NOT_SUPPORTED, std::move(why));
  return problem;
}

Algorithm given(const cublasLtMatmulAlgo_t& bytes, const Problem& problem,
                const cublasLtObject& handle) {
  const auto algorithm = algorithm_of(bytes);
  if (!algorithm)
    refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that this library did not give");
  const std::string why = why_refused(*algorithm, problem, handle.architecture);
  if (algorithm->architecture != handle.architecture) refuse(CUBLAS_STATUS_ARCH_MISMATCH, why);
  if (!why.empty()) refuse(CUBLAS_STATUS_NOT_SUPPORTED, why);
  return *algorithm;
}

// The arguments of cublasLtMatmul() that are addresses.
struct Addresses {
  const void *a, *b, *c, *d, *workspace;
  size_t workspace_bytes;
};

void expect_aligned(const void* address, uint32_t alignment, const char* name) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0)
    refuse(CUBLAS_STATUS_NOT_SUPPORTED,
           fmt::format("{} at {}, and the algorithm needs multiples of {} bytes", name, address,
                       alignment));
}

Algorithm first_for(const Problem& problem, const Addresses& at, const cublasLtObject& handle) {
  cublasLtMatmulPreferenceObject preference{.workspace_bytes = at.workspace_bytes};
  const auto alignment = [](const void* address) {
    const auto bits = reinterpret_cast<uintptr_t>(address) | 16;
    return static_cast<uint32_t>(bits & -bits);
  };
  preference.alignment_a = alignment(at.a), preference.alignment_b = alignment(at.b);
  preference.alignment_c = alignment(at.c), preference.alignment_d = alignment(at.d);
  const auto found = algorithms_for(problem, preference, handle.architecture);
  if (found.empty()) refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
  return found[0];
}

void check_addresses(const Problem& problem, const Algorithm& algorithm, const Addresses& at) {
  expect_aligned(at.a, algorithm.alignment_a, "A");
  expect_aligned(at.b, algorithm.alignment_b, "B");
  expect_aligned(at.c, algorithm.alignment_c, "C");
  expect_aligned(at.d, algorithm.alignment_d, "D");
  const auto least = [](const cublasLtMatrixLayoutObject& layout) {
    return layout.type == CUDA_R_8I ? 4u : static_cast<uint32_t>(bytes_of(layout.type));
  };
  expect_aligned(at.a, least(*problem.a), "A");
  expect_aligned(at.b, least(*problem.b), "B");
  expect_aligned(at.c, least(*problem.c), "C");
  expect_aligned(at.d, least(*problem.d), "D");
  expect_aligned(at.workspace, 16, "the workspace");
  const uint64_t wanted = workspace_of(algorithm, problem);
  if (wanted > at.workspace_bytes || (wanted > 0 && at.workspace == nullptr))
    refuse(CUBLAS_STATUS_INVALID_VALUE,
           fmt::format("a workspace of {} bytes, and {} are needed", at.workspace_bytes, wanted));
  const auto& [product, a, b, c, d] = problem;
  if (at.c == at.d && (c->leading != d->leading || c->batch_stride != d->batch_stride))
    refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D, and their layouts differ");
}

// One for each product of the batch.
LibraryMemory memory_of(const cublasLtMatrixLayoutObject& layout, const void* address, int product,
                        bool is_written) {
  const size_t bytes = bytes_of(layout.type);
  const auto offset = static_cast<uint64_t>(layout.batch_stride) * static_cast<uint64_t>(product);
  return {.address = reinterpret_cast<CUdeviceptr>(address) + offset * bytes,
          .bytes = layout.rows * bytes,
          .rows = layout.columns,
          .pitch = static_cast<size_t>(layout.leading) * bytes,
          .is_read = !is_written,
          .is_written = is_written};
}

struct Factors {
  float alpha = 1, beta = 0;
};
Factors factors_of(cudaDataType scale, const void* alpha, const void* beta) {
  if (alpha == nullptr || beta == nullptr) refuse(CUBLAS_STATUS_INVALID_VALUE, "no alpha or beta");
  const auto read = [&](const void* from) {
    if (scale != CUDA_R_32I) return *static_cast<const float*>(from);
    return static_cast<float>(*static_cast<const int32_t*>(from));
  };
  return {read(alpha), read(beta)};
}

// What the work needs of the caller's objects, which may be destroyed before it is done.
struct Copied {
  cublasLtMatmulDescObject product;
  cublasLtMatrixLayoutObject a, b, c, d;
  Problem problem() const { return {&product, &a, &b, &c, &d}; }
};

void put(const Problem& problem, const Algorithm& algorithm, const Factors& factors,
         const Addresses& at, CUstream stream) {
  const auto copied = std::make_shared<Copied>(
      Copied{*problem.product, *problem.a, *problem.b, *problem.c, *problem.d});
  const bool has_bias = (problem.product->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const bool has_c = factors.beta != 0;
  std::vector<LibraryMemory> memory;
  for (int i = 0; i < problem.d->batches; ++i) {
    memory.push_back(memory_of(*problem.a, at.a, i, false));
    memory.push_back(memory_of(*problem.b, at.b, i, false));
    memory.push_back(memory_of(*problem.d, at.d, i, true));
    if (has_c) memory.push_back(memory_of(*problem.c, at.c, i, false));
  }
  const size_t of_each = has_c ? 4 : 3;
  const cudaDataType bias_type = problem.product->bias_type.value_or(problem.d->type);
  if (has_bias)
    memory.push_back({.address = problem.product->bias,
                      .bytes = problem.d->rows * bytes_of(bias_type),
                      .is_read = true});
  const uint64_t workspace = workspace_of(algorithm, problem);
  if (workspace > 0)
    memory.push_back({.address = reinterpret_cast<CUdeviceptr>(at.workspace),
                      .bytes = workspace,
                      .is_written = true});
  const auto run = [=, split = algorithm.split](std::byte* const* host) {
    const Problem p = copied->problem();
    const auto batches = static_cast<size_t>(p.d->batches);
    const std::byte* const bias = has_bias ? host[batches * of_each] : nullptr;
    std::byte* const sums = workspace > 0 ? host[batches * of_each + (has_bias ? 1 : 0)] : nullptr;
    for (size_t i = 0; i < batches; ++i) {
      std::byte* const* const its = host + i * of_each;
      compute(p, split, factors.alpha, factors.beta,
              {.a = its[0],
               .b = its[1],
               .c = has_c ? its[3] : nullptr,
               .bias = bias,
               .d = its[2],
               .sums = sums == nullptr ? nullptr : sums + i * (workspace / batches)});
    }
  };
  const CUresult result = virtual_card::put_library_work(stream, "cublasLtMatmul", memory, run);
  if (result != CUDA_SUCCESS)
    refuse(CUBLAS_STATUS_EXECUTION_FAILED, fmt::format("the card answers {}", unsigned{result}));
}

template <class T>
void give(const T& value, void* to, size_t bytes, size_t* written) {
  if (to == nullptr || bytes != sizeof(T))
    refuse(CUBLAS_STATUS_INVALID_VALUE,
           fmt::format("an attribute of {} bytes, and {} are its size", bytes, sizeof(T)));
  std::memcpy(to, &value, sizeof(T));
  if (written != nullptr) *written = sizeof(T);
}

}  // namespace
}  // namespace anneal::fake_cublas_lt

namespace anneal::cuda {

using namespace fake_cublas_lt;

extern "C" {

#define X(function, result, ...) result function(__VA_ARGS__);
ANNEAL_FOR_EACH_CUBLAS_LT_FUNCTION(X)
#undef X

size_t cublasLtGetVersion() {
  const char* const version = std::getenv("ANNEAL_FAKE_CUBLAS_LT_VERSION");
  return version != nullptr ? static_cast<size_t>(std::atoi(version)) : 130100;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return call("cublasLtCreate", [&] {
    const int device = current_device();
    if (device < 0) refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no context is current");
    keep(handle,
         new cublasLtObject{device, card<decltype(virtual_card::virtual_card_current_architecture)>(
                                        "virtual_card_current_architecture")()});
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return call("cublasLtDestroy", [&] { destroy(handle, "handle"); });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType scale) {
  return call("cublasLtMatmulDescCreate", [&] {
    keep(product, new cublasLtMatmulDescObject{.compute = compute, .scale = scale});
  });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return call("cublasLtMatmulDescDestroy", [&] { destroy(product, "product"); });
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return call("cublasLtMatmulDescSetAttribute", [&] {
    cublasLtMatmulDescObject& of = object(product, "product");
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(value, bytes, of.transpose_a);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(value, bytes, of.transpose_b);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(value, bytes, of.epilogue);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(value, bytes, of.bias);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(value, bytes, of.bias_type.emplace());
    }
    refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that the fake does not know");
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return call("cublasLtMatrixLayoutCreate", [&] {
    keep(layout, new cublasLtMatrixLayoutObject{
                     .type = type, .rows = rows, .columns = columns, .leading = leading});
  });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return call("cublasLtMatrixLayoutDestroy", [&] { destroy(layout, "layout"); });
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return call("cublasLtMatrixLayoutSetAttribute", [&] {
    cublasLtMatrixLayoutObject& of = object(layout, "layout");
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        take(value, bytes, of.batches);
        if (of.batches < 1) refuse(CUBLAS_STATUS_INVALID_VALUE, "no batch");
        return;
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(value, bytes, of.batch_stride);
    }
    refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that the fake does not know");
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return call("cublasLtMatmulPreferenceCreate",
              [&] { keep(preference, new cublasLtMatmulPreferenceObject); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return call("cublasLtMatmulPreferenceDestroy", [&] { destroy(preference, "preference"); });
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return call("cublasLtMatmulPreferenceSetAttribute", [&] {
    cublasLtMatmulPreferenceObject& of = object(preference, "preference");
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(value, bytes, of.workspace_bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(value, bytes, of.reductions);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(value, bytes, of.alignment_a);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(value, bytes, of.alignment_b);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(value, bytes, of.alignment_c);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(value, bytes, of.alignment_d);
    }
    refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that the fake does not know");
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  return call("cublasLtMatmulAlgoGetHeuristic", [&] {
    if (most <= 0) refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm is asked for");
    const cublasLtObject& of = handle_of(handle);
    const Problem problem = problem_of(product, a, b, c, d);
    *count = 0;
    for (const Algorithm& each :
         algorithms_for(problem, object(preference, "preference"), of.architecture)) {
      if (*count == most) return;
      results[(*count)++] = {.algo = bytes_of(each),
                             .workspaceSize = workspace_of(each, problem),
                             .state = CUBLAS_STATUS_SUCCESS,
                             .wavesCount = 1,
                             .reserved = {}};
    }
    if (*count == 0) refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
  });
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return call("cublasLtMatmulAlgoCheck", [&] {
    const cublasLtObject& of = handle_of(handle);
    const Problem problem = problem_of(product, a, b, c, d);
    result->workspaceSize = workspace_of(given(*algorithm, problem, of), problem);
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
  });
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* to, size_t bytes, size_t* written) {
  return call("cublasLtMatmulAlgoConfigGetAttribute", [&] {
    const auto of = algorithm_of(*algorithm);
    if (!of) refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that this library did not give");
    switch (attribute) {
      case CUBLASLT_ALGO_CONFIG_ID:
        return give(of->id, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_TILE_ID:
        return give(of->tile, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return give(of->split, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return give(of->reduction, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
        return give(of->swizzle, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
        return give(of->option, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        return give(of->stages, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
        return give(of->inner_shape, to, bytes, written);
      case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
        return give(of->cluster, to, bytes, written);
    }
    refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that the fake does not know");
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, CUstream stream) {
  return call("cublasLtMatmul", [&] {
    const cublasLtObject& of = handle_of(handle);
    const Problem problem = problem_of(product, a_layout, b_layout, c_layout, d_layout);
    const Addresses at{a, b, c, d, workspace, workspace_bytes};
    const Algorithm chosen =
        algorithm != nullptr ? given(*algorithm, problem, of) : first_for(problem, at, of);
    check_addresses(problem, chosen, at);
    put(problem, chosen, factors_of(problem.product->scale, alpha, beta), at, stream);
  });
}

}  // extern "C"

}  // namespace anneal::cuda
