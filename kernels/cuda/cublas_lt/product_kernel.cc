#include "anneal/kernels/cuda/cublas_lt/product_kernel.h"

#include <fmt/format.h>

#include <cstring>

#include "anneal/graph/program/number_text.h"
#include "anneal/kernels/cuda/cost/rounded_constant.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"
#include "anneal/kernels/cuda/cublas_lt/algorithm.h"
#include "anneal/kernels/cuda/cublas_lt/library.h"
#include "anneal/kernels/cuda/runtime/device.h"

namespace anneal::cuda {
namespace {

constexpr size_t kWorkspaceAlignment = 256;  // bytes, as the library documents

// Bound to a context's shapes: its own descriptors, for the launches of one thread.
struct PreparedLtProduct final : PreparedKernel {
  explicit PreparedLtProduct(LtDescriptors made) : descriptors(std::move(made)) {}
  const LtDescriptors descriptors;
};

class LtProductKernel final : public Kernel {
 public:
  // handle: null where it is only built for. rounded_bias: null if the input is not rounded.
  LtProductKernel(const LtProblem& problem, VendorTactic tactic, LtHandle* handle,
                  std::unique_ptr<Buffer> rounded_bias)
      : problem_(problem),
        tactic_(std::move(tactic)),
        handle_(handle),
        rounded_bias_(std::move(rounded_bias)) {
    std::memcpy(&algorithm_, tactic_.bytes.data(), sizeof(algorithm_));
  }
  std::vector<std::byte> tactic() const override { return tactic_of(tactic_); }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView>, std::span<const TensorView>,
                                          int) const override {
    check(handle_ != nullptr, "it runs on a card");
    auto made = LtDescriptors::make(*handle_, problem_);
    if (!made) fail(ErrorCode::kDevice, made.reason());
    auto prepared = std::make_unique<PreparedLtProduct>(*std::move(made));
    if (tactic_.workspace_bytes > 0)
      prepared->workspace_bytes = tactic_.workspace_bytes + kWorkspaceAlignment;
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    const LtDescriptors& of = static_cast<PreparedLtProduct*>(args.prepared)->descriptors;
    const auto input = [&](size_t at) { return args.inputs[at].data; };
    const CublasLt& library = handle_->library();
    std::byte* const d = args.outputs[0].data;
    const std::byte* const c = problem_.c ? input(problem_.c->operand) : d;
    const std::byte *const a = input(problem_.a.operand), *const b = input(problem_.b.operand);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const std::byte* bias = nullptr;
    if (problem_.bias) {
      bias = rounded_bias_ != nullptr ? rounded_bias_->data() : input(*problem_.bias);
      status = library.cublasLtMatmulDescSetAttribute(
          of.product(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    }
    const bool is_int = problem_.scale == CUDA_R_32I;
    const float alpha = problem_.alpha, beta = problem_.c ? 1 : 0;
    const int32_t one = 1, none = 0;
    const auto host = [&](const float& number, const int32_t& whole) -> const void* {
      return is_int ? static_cast<const void*>(&whole) : &number;
    };
    // For memory that the algorithm cannot take the library chooses one itself.
    const bool fits = is_aligned(a, problem_.a) && is_aligned(b, problem_.b) &&
                      is_aligned(c, problem_.c ? *problem_.c : problem_.d) &&
                      is_aligned(d, problem_.d) &&
                      reinterpret_cast<uintptr_t>(bias) % kBiasAlignment == 0;
    gpu_stream_of(args.stream).call([&](CUstream stream) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = library.cublasLtMatmul(
            handle_->handle(), of.product(), host(alpha, one), a, of.a(), b, of.b(),
            host(beta, none), c, of.c(), d, of.d(), fits ? &algorithm_ : nullptr,
            aligned_up(args.workspace, kWorkspaceAlignment), tactic_.workspace_bytes, stream);
    });
    if (status != CUBLAS_STATUS_SUCCESS)
      fail(ErrorCode::kDevice, fmt::format("{} on {}", handle_->failure("cublasLtMatmul", status),
                                           handle_->context().name()));
  }

 private:
  static bool is_aligned(const std::byte* data, const LtMatrix& matrix) {
    return reinterpret_cast<uintptr_t>(data) % matrix.alignment == 0;
  }

  const LtProblem problem_;
  const VendorTactic tactic_;
  LtHandle* const handle_;  // of the device, which outlives its kernels
  const std::unique_ptr<Buffer> rounded_bias_;
  cublasLtMatmulAlgo_t algorithm_;
};

// The constant in the type of D, on the card.
std::unique_ptr<Buffer> rounded_bias(const LtProblem& problem, const Request& request) {
  const std::vector<std::byte> rounded =
      rounded_constant(request.inputs[*problem.bias].constant->as<float>(),
                       problem.d.type == CUDA_R_16F ? DataType::kF16 : DataType::kBF16);
  auto buffer = request.device.allocate(rounded.size());
  const auto stream = request.device.make_stream();
  request.device.copy(buffer->data(), rounded.data(), rounded.size(), *stream);
  stream->wait();
  return buffer;
}

int architecture_of(const Request& request) {
  const std::string target = request.device.target();
  return parse_number<int>(std::string_view(target).substr(std::min<size_t>(3, target.size())))
      .value_or(0);
}

VendorTactic tactic_for(const LtHandle& handle, const cublasLtMatmulHeuristicResult_t& found,
                        int architecture) {
  VendorTactic tactic{.library_version = handle.version(),
                      .architecture = static_cast<uint32_t>(architecture),
                      .workspace_bytes = found.workspaceSize,
                      .algorithm = text_of(algorithm_of(handle.library(), found.algo)),
                      .bytes = std::vector<std::byte>(sizeof(found.algo))};
  std::memcpy(tactic.bytes.data(), &found.algo, sizeof(found.algo));
  return tactic;
}

// Why the library here does not take a recorded algorithm. Empty: it does.
std::string why_not_here(const LtHandle& handle, const LtProblem& problem,
                         const VendorTactic& tactic) {
  if (!handle.why_not().empty()) return handle.why_not();
  if (tactic.library_version != handle.version())
    return fmt::format("its algorithm is recorded by cuBLASLt {}, and {} is installed",
                       library_version_text(tactic.library_version),
                       library_version_text(handle.version()));
  const auto descriptors = LtDescriptors::make(handle, problem);
  if (!descriptors) return descriptors.reason();
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, tactic.bytes.data(), sizeof(algorithm));
  cublasLtMatmulHeuristicResult_t result{};
  const auto current = handle.context().enter();
  const cublasStatus_t status = handle.library().cublasLtMatmulAlgoCheck(
      handle.handle(), descriptors->product(), descriptors->a(), descriptors->b(), descriptors->c(),
      descriptors->d(), &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return handle.failure("cublasLtMatmulAlgoCheck", status);
  if (result.workspaceSize > tactic.workspace_bytes)
    return fmt::format("its algorithm asks for {} bytes of workspace, {} are recorded",
                       result.workspaceSize, tactic.workspace_bytes);
  return {};
}

}  // namespace

std::vector<Tactic> lt_tactics(const LtProblem& problem, const Request& request) {
  GpuDevice& device = gpu_of(request.device);
  if (!device.takes_libraries() || device.context() == nullptr) return {};
  const LtHandle& handle = lt_handle_of(device);
  if (!handle.why_not().empty()) return {};
  const int architecture = architecture_of(request);
  std::vector<Tactic> tactics;
  for (const auto& found : algorithms_for(handle, problem, workspace_limit(architecture)))
    tactics.push_back(tactic_of(tactic_for(handle, found, architecture)));
  return tactics;
}

KernelResult make_lt_product(const LtProblem& problem, const Request& request) {
  GpuDevice& device = gpu_of(request.device);
  if (!device.takes_libraries()) return refuse("the emulated device runs no libraries");
  const bool is_card = device.context() != nullptr;
  const int architecture = architecture_of(request);
  Tactic first;
  if (request.tactic.empty()) {
    if (!is_card) return refuse("without a card cuBLASLt names no algorithm");
    if (const std::string& why = lt_handle_of(device).why_not(); !why.empty()) return refuse(why);
    std::vector<Tactic> tactics = lt_tactics(problem, request);
    if (tactics.empty()) return refuse("cuBLASLt has no algorithm for it");
    first = std::move(tactics[0]);
  }
  auto tactic =
      vendor_tactic_of(request.tactic.empty() ? std::span<const std::byte>(first) : request.tactic);
  if (!tactic || tactic->bytes.size() != sizeof(cublasLtMatmulAlgo_t))
    return refuse("a tactic that is none of this kernel's");
  if (tactic->architecture != static_cast<uint32_t>(architecture))
    return refuse(fmt::format("its algorithm is for sm_{}, and this is sm_{}", tactic->architecture,
                              architecture));
  if (tactic->workspace_bytes > workspace_limit(architecture))
    return refuse(fmt::format("its algorithm has {} bytes of workspace, {} are allowed",
                              tactic->workspace_bytes, workspace_limit(architecture)));
  LtHandle* handle = nullptr;
  if (is_card) {
    handle = &lt_handle_of(device);
    if (std::string why = why_not_here(*handle, problem, *tactic); !why.empty())
      return refuse(std::move(why));
  }
  return std::make_unique<LtProductKernel>(
      problem, *std::move(tactic), handle,
      is_card && problem.rounds_bias ? rounded_bias(problem, request) : nullptr);
}

}  // namespace anneal::cuda
