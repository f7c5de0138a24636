#include "anneal/kernels/cuda/cublas_lt/library.h"

#include <fmt/format.h>

namespace anneal::cuda {
namespace {

class Statuses {
 public:
  explicit Statuses(const LtHandle& handle) : handle_(handle) {}
  void expect(const char* call, cublasStatus_t status) {
    if (failure_.empty()) failure_ = handle_.failure(call, status);
  }
  const std::string& failure() const { return failure_; }

 private:
  const LtHandle& handle_;
  std::string failure_;
};

LtObject<cublasLtMatrixLayoutObject> layout_of(const CublasLt& library, const LtMatrix& matrix,
                                               int32_t batches, Statuses& statuses) {
  cublasLtMatrixLayout_t made = nullptr;
  statuses.expect(
      "cublasLtMatrixLayoutCreate",
      library.cublasLtMatrixLayoutCreate(&made, matrix.type, static_cast<uint64_t>(matrix.rows),
                                         static_cast<uint64_t>(matrix.columns), matrix.leading));
  LtObject<cublasLtMatrixLayoutObject> layout(made, library.cublasLtMatrixLayoutDestroy);
  if (made == nullptr || batches == 1) return layout;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    statuses.expect(
        "cublasLtMatrixLayoutSetAttribute",
        library.cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
  return layout;
}

void set_product(const CublasLt& library, cublasLtMatmulDesc_t product, const LtProblem& problem,
                 Statuses& statuses) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    statuses.expect(
        "cublasLtMatmulDescSetAttribute",
        library.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, problem.epilogue);
  if (!problem.bias) return;
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, kBiasAlignment);
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, problem.d.type);
}

}  // namespace

LtHandle::LtHandle(std::shared_ptr<Context> context) : context_(std::move(context)) {
  const LibraryTable<CublasLt>& opened = cublas_lt_library();
  if (!opened.table) {
    why_not_ = "cuBLASLt is missing: " + opened.why_not;
    return;
  }
  const auto current = context_->enter();
  why_not_ = failure("cublasLtCreate", library().cublasLtCreate(&handle_));
}

LtHandle::~LtHandle() {
  if (handle_ == nullptr) return;
  if (const auto current = context_->enter_to_free()) library().cublasLtDestroy(handle_);
}

std::string LtHandle::failure(const char* call, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fmt::format("{}: {}", call, library().cublasLtGetStatusName(status));
}

LtHandle& lt_handle_of(GpuDevice& device) {
  return device.of_library<LtHandle>([&] { return std::make_shared<LtHandle>(device.context()); });
}

Result<LtDescriptors> LtDescriptors::make(const LtHandle& handle, const LtProblem& problem) {
  const CublasLt& library = handle.library();
  Statuses statuses(handle);
  cublasLtMatmulDesc_t product = nullptr;
  statuses.expect("cublasLtMatmulDescCreate",
                  library.cublasLtMatmulDescCreate(&product, problem.compute, problem.scale));
  LtDescriptors made({product, library.cublasLtMatmulDescDestroy});
  if (product == nullptr) return refuse(statuses.failure());
  set_product(library, product, problem, statuses);
  // Without a residual C is D, which the library does not read.
  for (const LtMatrix* const matrix :
       {&problem.a, &problem.b, problem.c ? &*problem.c : &problem.d, &problem.d})
    made.layouts_.push_back(layout_of(library, *matrix, problem.batches, statuses));
  if (!statuses.failure().empty()) return refuse(statuses.failure());
  return made;
}

uint64_t workspace_limit(int architecture) { return uint64_t{architecture >= 90 ? 32u : 4u} << 20; }

std::vector<cublasLtMatmulHeuristicResult_t> algorithms_for(const LtHandle& handle,
                                                            const LtProblem& problem,
                                                            uint64_t workspace_bytes) {
  const CublasLt& library = handle.library();
  const auto descriptors = LtDescriptors::make(handle, problem);
  cublasLtMatmulPreference_t made = nullptr;
  if (!descriptors || library.cublasLtMatmulPreferenceCreate(&made) != CUBLAS_STATUS_SUCCESS)
    return {};
  const LtObject<cublasLtMatmulPreferenceObject> preference(
      made, library.cublasLtMatmulPreferenceDestroy);
  Statuses statuses(handle);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    statuses.expect(
        "cublasLtMatmulPreferenceSetAttribute",
        library.cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  const LtMatrix& c = problem.c ? *problem.c : problem.d;
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.a.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.b.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.d.alignment);
  if (!statuses.failure().empty()) return {};
  std::vector<cublasLtMatmulHeuristicResult_t> found(kMostAlgorithms);
  int count = 0;
  const auto current = handle.context().enter();
  const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      handle.handle(), descriptors->product(), descriptors->a(), descriptors->b(), descriptors->c(),
      descriptors->d(), made, kMostAlgorithms, found.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [&](const cublasLtMatmulHeuristicResult_t& each) {
    return each.state != CUBLAS_STATUS_SUCCESS || each.workspaceSize > workspace_bytes;
  });
  return found;
}

}  // namespace anneal::cuda
