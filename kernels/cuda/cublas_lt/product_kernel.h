// The kernel of a product that cuBLASLt computes.
#pragma once
#include "anneal/kernels/cuda/cublas_lt/problem.h"

namespace anneal::cuda {

// Tactics are VendorTactics; empty where there is no card or no algorithm.
std::vector<Tactic> lt_tactics(const LtProblem& problem, const Request& request);
// With a tactic, it runs that algorithm or refuses; without one, the library's first choice.
KernelResult make_lt_product(const LtProblem& problem, const Request& request);

}  // namespace anneal::cuda
