#include "anneal/tests/virtual_card/cublas_lt/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace anneal::fake_cublas_lt {
namespace {

constexpr uint64_t kSalt = 0x6c74'5f66'616b'6531;

uint64_t digest(const Algorithm& algorithm) {
  std::byte bytes[sizeof(Algorithm)];
  std::memcpy(bytes, &algorithm, sizeof(bytes));
  uint64_t hash = kSalt;
  for (size_t i = sizeof(algorithm.check); i < sizeof(bytes); ++i)
    hash = (hash ^ static_cast<uint64_t>(bytes[i])) * 0x100000001b3;
  return hash;
}

struct Types {
  cublasComputeType_t compute;
  cudaDataType scale, operands, results;
  cudaDataType bias;  // of the epilogues with one
  bool has_epilogues;
  int32_t algorithm;
};
constexpr Types kTypes[] = {
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, true, 55},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, true, 43},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, true, 66},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, true, 66},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, true, 66},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, true, 66},
    {CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, false, 39},
    {CUBLAS_COMPUTE_32I, CUDA_R_32F, CUDA_R_8I, CUDA_R_8I, CUDA_R_32F, true, 66},
};

const Types* types_of(const Problem& p) {
  const auto found = std::ranges::find_if(kTypes, [&](const Types& each) {
    return each.compute == p.product->compute && each.scale == p.product->scale &&
           each.operands == p.a->type && each.operands == p.b->type && each.results == p.c->type &&
           each.results == p.d->type;
  });
  return found == std::end(kTypes) ? nullptr : &*found;
}

bool has_bias(uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }

std::string why_epilogue_refused(const Problem& p, const Types& types) {
  const uint32_t epilogue = p.product->epilogue;
  constexpr uint32_t kKnown[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU,
                                 CUBLASLT_EPILOGUE_BIAS,    CUBLASLT_EPILOGUE_RELU_BIAS,
                                 CUBLASLT_EPILOGUE_GELU,    CUBLASLT_EPILOGUE_GELU_BIAS};
  if (std::ranges::find(kKnown, epilogue) == std::end(kKnown))
    return fmt::format("epilogue {}", epilogue);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && !types.has_epilogues)
    return "an epilogue of results of i32";
  if (!has_bias(epilogue)) return {};
  if (p.product->bias == 0) return "an epilogue with a bias, and no bias";
  if (p.product->bias_type.value_or(types.results) != types.bias) return "a bias of another type";
  return {};
}

std::string why_layout_refused(const cublasLtMatrixLayoutObject& layout, const char* name,
                               uint64_t rows, uint64_t columns) {
  if (layout.rows != rows || layout.columns != columns)
    return fmt::format("{} is {} x {}, and {} x {} is wanted", name, layout.rows, layout.columns,
                       rows, columns);
  if (layout.leading < static_cast<int64_t>(layout.rows))
    return fmt::format("{} has a leading dimension of {} for {} rows", name, layout.leading,
                       layout.rows);
  if (layout.batches > 1 && layout.batch_stride < 0)
    return fmt::format("{} has a negative batch stride", name);
  return {};
}

std::string why_layouts_refused(const Problem& p) {
  const uint64_t m = p.d->rows, n = p.d->columns, k = p.depth();
  if (m == 0 || n == 0 || k == 0) return "an empty product";
  const bool ta = p.product->transpose_a != 0, tb = p.product->transpose_b != 0;
  std::string why = why_layout_refused(*p.a, "A", ta ? k : m, ta ? m : k);
  if (why.empty()) why = why_layout_refused(*p.b, "B", tb ? n : k, tb ? k : n);
  if (why.empty()) why = why_layout_refused(*p.c, "C", m, n);
  if (why.empty()) why = why_layout_refused(*p.d, "D", m, n);
  if (!why.empty()) return why;
  for (const auto* each : {p.a, p.b, p.c})
    if (each->batches != p.d->batches) return "batches of different sizes";
  const auto& d = *p.d;
  const auto rows = static_cast<int64_t>(m);
  const bool behind = d.batch_stride >= d.leading * (static_cast<int64_t>(n) - 1) + rows;
  const bool beside =
      d.batch_stride >= rows && d.batch_stride * (d.batches - 1) + rows <= d.leading;
  if (d.batches > 1 && !behind && !beside) return "results that overlap";
  return {};
}

std::string why_bytes_refused(const Problem& p) {
  if (p.product->compute != CUBLAS_COMPUTE_32I) return {};
  if (p.product->transpose_a == 0 || p.product->transpose_b != 0)
    return "8 bits in another format than TN";
  if (p.d->rows % 4 != 0 || p.depth() % 4 != 0) return "8 bits, and m or k is no multiple of 4";
  for (const auto* each : {p.a, p.b, p.c, p.d})
    if (each->leading % 4 != 0 || (each->batches > 1 && each->batch_stride % 4 != 0))
      return "8 bits, and a leading dimension or batch stride is no multiple of 4";
  return {};
}

// The largest alignment that the distances in a matrix allow, if its address has `most`.
uint32_t alignment_of(const cublasLtMatrixLayoutObject& layout, uint32_t most) {
  const auto bytes = static_cast<int64_t>(bytes_of(layout.type));
  uint32_t alignment = std::min(most, 16u);
  while (alignment > 1 && ((layout.columns > 1 && layout.leading * bytes % alignment != 0) ||
                           (layout.batches > 1 && layout.batch_stride * bytes % alignment != 0)))
    alignment /= 2;
  return alignment;
}

}  // namespace

size_t bytes_of(cudaDataType type) {
  return type == CUDA_R_8I ? 1 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 4;
}

std::string why_refused(const Problem& problem) {
  const Types* const types = types_of(problem);
  if (types == nullptr) return "a combination of types that is in no table of the manual";
  std::string why = why_layouts_refused(problem);
  if (why.empty()) why = why_bytes_refused(problem);
  if (why.empty()) why = why_epilogue_refused(problem, *types);
  return why;
}

std::vector<Algorithm> algorithms_for(const Problem& problem,
                                      const cublasLtMatmulPreferenceObject& preference,
                                      int architecture) {
  const Types* const types = types_of(problem);
  if (types == nullptr) return {};
  constexpr struct {
    uint32_t tile, stages;
    int32_t split;
  } kConfigurations[] = {{20, 35, 1}, {24, 35, 1}, {15, 34, 3},
                         {23, 36, 1}, {18, 34, 2}, {11, 33, 1}};
  std::vector<Algorithm> found;
  for (const auto& [tile, stages, split] : kConfigurations) {
    Algorithm made;
    made.id = types->algorithm;
    made.tile = tile;
    made.stages = stages;
    made.split = split;
    made.reduction = split > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0u;
    made.cluster = 2;
    made.architecture = static_cast<uint16_t>(architecture);
    const auto align = [](const cublasLtMatrixLayoutObject& layout, uint32_t given) {
      return static_cast<uint8_t>(alignment_of(layout, given));
    };
    made.alignment_a = align(*problem.a, preference.alignment_a);
    made.alignment_b = align(*problem.b, preference.alignment_b);
    made.alignment_c = align(*problem.c, preference.alignment_c);
    made.alignment_d = align(*problem.d, preference.alignment_d);
    const bool is_allowed = split == 1 || (preference.reductions & made.reduction) != 0;
    if (!is_allowed || static_cast<uint64_t>(split) > problem.depth() ||
        workspace_of(made, problem) > preference.workspace_bytes)
      continue;
    made.check = digest(made);
    found.push_back(made);
  }
  return found;
}

uint64_t workspace_of(const Algorithm& algorithm, const Problem& problem) {
  if (algorithm.split == 1) return 0;
  return 4 * problem.d->rows * problem.d->columns * static_cast<uint64_t>(problem.d->batches) *
         static_cast<uint64_t>(algorithm.split);
}

std::string why_refused(const Algorithm& algorithm, const Problem& problem, int architecture) {
  if (algorithm.architecture != architecture)
    return fmt::format("an algorithm for sm_{} on sm_{}", algorithm.architecture, architecture);
  const Types* const types = types_of(problem);
  if (types == nullptr || types->algorithm != algorithm.id) return "an algorithm of other types";
  const auto is_possible = [](const cublasLtMatrixLayoutObject& layout, uint32_t alignment) {
    return alignment_of(layout, alignment) == alignment;
  };
  if (!is_possible(*problem.a, algorithm.alignment_a) ||
      !is_possible(*problem.b, algorithm.alignment_b) ||
      !is_possible(*problem.c, algorithm.alignment_c) ||
      !is_possible(*problem.d, algorithm.alignment_d))
    return "an algorithm for other leading dimensions";
  if (static_cast<uint64_t>(algorithm.split) > problem.depth()) return "a depth that is too small";
  return {};
}

cublasLtMatmulAlgo_t bytes_of(const Algorithm& algorithm) {
  return std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
}

std::optional<Algorithm> algorithm_of(const cublasLtMatmulAlgo_t& bytes) {
  const auto read = std::bit_cast<Algorithm>(bytes);
  if (read.check != digest(read)) return std::nullopt;
  return read;
}

}  // namespace anneal::fake_cublas_lt
