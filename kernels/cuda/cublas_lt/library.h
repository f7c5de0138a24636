// cuBLASLt's objects: a handle for a card, and descriptors of a product.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/cublas_lt/problem.h"
#include "anneal/kernels/cuda/runtime/context.h"
#include "anneal/kernels/cuda/runtime/gpu_device.h"

namespace anneal::cuda {

// Bytes to which algorithms may assume that a bias is aligned: weights and slots are.
inline constexpr uintptr_t kBiasAlignment = 64;

// One for each device. Thread-safe, as the library's handle is.
class LtHandle {
 public:
  // `why_not` is not empty where cuBLASLt is missing or refuses the card.
  explicit LtHandle(std::shared_ptr<Context> context);
  ~LtHandle();
  LtHandle(const LtHandle&) = delete;
  LtHandle& operator=(const LtHandle&) = delete;

  const std::string& why_not() const { return why_not_; }
  // REQUIRES, of all below: why_not() is empty
  const CublasLt& library() const { return *cublas_lt_library().table; }
  uint32_t version() const { return static_cast<uint32_t>(library().cublasLtGetVersion()); }
  cublasLtHandle_t handle() const { return handle_; }
  Context& context() const { return *context_; }
  // "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"; empty after success.
  std::string failure(const char* call, cublasStatus_t status) const;

 private:
  const std::shared_ptr<Context> context_;
  cublasLtHandle_t handle_ = nullptr;
  std::string why_not_;
};

// REQUIRES: the device is a card, not one to build for.
LtHandle& lt_handle_of(GpuDevice& device);

template <class Object>
using LtObject = std::unique_ptr<Object, cublasStatus_t (*)(Object*)>;

// The descriptors of a problem. One thread at a time: a launch sets the address of the bias.
class LtDescriptors {
 public:
  // Or the library's refusal.
  static Result<LtDescriptors> make(const LtHandle& handle, const LtProblem& problem);

  cublasLtMatmulDesc_t product() const { return product_.get(); }
  cublasLtMatrixLayout_t a() const { return layouts_[0].get(); }
  cublasLtMatrixLayout_t b() const { return layouts_[1].get(); }
  cublasLtMatrixLayout_t c() const { return layouts_[2].get(); }
  cublasLtMatrixLayout_t d() const { return layouts_[3].get(); }

 private:
  explicit LtDescriptors(LtObject<cublasLtMatmulDescObject> product)
      : product_(std::move(product)) {}
  LtObject<cublasLtMatmulDescObject> product_;
  std::vector<LtObject<cublasLtMatrixLayoutObject>> layouts_;
};

// The bytes of workspace that an algorithm may ask for: as many as cuBLAS itself takes on a card of
// this architecture by default.
uint64_t workspace_limit(int architecture);
constexpr int kMostAlgorithms = 8;
// Algorithms for the problem, the library's first choice first. Sums of a depth that is split are
// of the compute type. Empty: it has none.
std::vector<cublasLtMatmulHeuristicResult_t> algorithms_for(const LtHandle& handle,
                                                            const LtProblem& problem,
                                                            uint64_t workspace_bytes);

}  // namespace anneal::cuda
