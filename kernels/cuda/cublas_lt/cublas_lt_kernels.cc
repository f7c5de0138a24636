// Kernels of cuBLASLt: "cublaslt.matmul" and, for 1x1 windows, "cublaslt.conv"; ".approximate" with
// the library's GELU or a rounded bias; ".tf32" with operands rounded to TF32.
#include "anneal/kernels/cuda/cublas_lt/product_kernel.h"
#include "anneal/kernels/cuda/kernels/entries.h"

namespace anneal::cuda {
namespace {

// For TF32, approximate or not.
template <class T>
Result<LtProblem> problem_for(const Request& request, LtArithmetic wanted) {
  const T& op = std::get<T>(request.op);
  auto problem = lt_problem(op, request, wanted);
  if (problem || !wanted.tf32) return problem;
  if (auto other = lt_problem(op, request, {.tf32 = true, .approximate = true})) return other;
  return problem;
}

template <class T, bool tf32, bool approximate>
KernelResult make_lt(const Request& request) {
  const auto problem = problem_for<T>(request, {.tf32 = tf32, .approximate = approximate});
  if (!problem) return refuse(problem.reason());
  return make_lt_product(*problem, request);
}

template <class T, bool tf32, bool approximate>
std::vector<Tactic> tactics_of(const Request& request) {
  const auto problem = problem_for<T>(request, {.tf32 = tf32, .approximate = approximate});
  return problem ? lt_tactics(*problem, request) : std::vector<Tactic>();
}

template <class T, bool tf32 = false, bool approximate = false>
constexpr KernelEntry lt_entry(std::string_view name, Layout prefers) {
  return {name,
          op_index<T>,
          prefers,
          make_lt<T, tf32, approximate>,
          !tf32 && !approximate,
          KernelSource::kCublasLt,
          tactics_of<T, tf32, approximate>};
}

constexpr KernelEntry kCublasLtEntries[] = {
    lt_entry<MatMul>("cublaslt.matmul", Layout::kRowMajor),
    lt_entry<MatMul, false, true>("cublaslt.matmul.approximate", Layout::kRowMajor),
    lt_entry<MatMul, true>("cublaslt.matmul.tf32", Layout::kRowMajor),
    lt_entry<Conv>("cublaslt.conv", Layout::kChannelsLast),
    lt_entry<Conv, false, true>("cublaslt.conv.approximate", Layout::kChannelsLast),
    lt_entry<Conv, true>("cublaslt.conv.tf32", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> cublas_lt_entries() { return kCublasLtEntries; }

}  // namespace anneal::cuda
