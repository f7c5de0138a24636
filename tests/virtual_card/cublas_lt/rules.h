// Which products the fake cuBLASLt takes, and with which algorithms. The sources are the tables and
// remarks on cublasLtMatmul() in NVIDIA's cuBLAS manual, and what an H100 answered
// (bench/results/2026-11-20-h100-probe.json).
#pragma once
#include <string>
#include <vector>

#include "anneal/tests/virtual_card/cublas_lt/objects.h"

namespace anneal::fake_cublas_lt {

// Empty: the library computes it.
std::string why_refused(const Problem& problem);
size_t bytes_of(cudaDataType type);

// At most 6, the best first.
std::vector<Algorithm> algorithms_for(const Problem& problem,
                                      const cublasLtMatmulPreferenceObject& preference,
                                      int architecture);
// Sums of parts of the depth, in the compute type.
uint64_t workspace_of(const Algorithm& algorithm, const Problem& problem);
// Empty: it is one that algorithms_for() gave for such a problem, with whatever preference.
std::string why_refused(const Algorithm& algorithm, const Problem& problem, int architecture);

cublasLtMatmulAlgo_t bytes_of(const Algorithm& algorithm);
// Nullopt if the library never gave these bytes.
std::optional<Algorithm> algorithm_of(const cublasLtMatmulAlgo_t& bytes);

}  // namespace anneal::fake_cublas_lt
