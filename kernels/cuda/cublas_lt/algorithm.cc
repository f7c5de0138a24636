#include "anneal/kernels/cuda/cublas_lt/algorithm.h"

#include <fmt/format.h>

namespace anneal::cuda {
namespace {

// By their numbers, cublasLtMatmulTile_t and cublasLtMatmulStages_t. "" has no name.
constexpr const char* kTiles[] = {
    "",       "8x8",    "8x16",    "16x8",    "8x32",    "16x16",   "32x8",    "8x64",   "16x32",
    "32x16",  "64x8",   "32x32",   "32x64",   "64x32",   "32x128",  "64x64",   "128x32", "64x128",
    "128x64", "64x256", "128x128", "256x64",  "64x512",  "128x256", "256x128", "512x64", "64x96",
    "96x64",  "96x128", "128x160", "160x128", "192x128", "128x192", "128x96",  "32x256", "256x32"};
constexpr const char* kStages[] = {
    "",       "16x1",    "16x2",    "16x3",    "16x4",     "16x5",     "16x6",    "32x1",
    "32x2",   "32x3",    "32x4",    "32x5",    "32x6",     "64x1",     "64x2",    "64x3",
    "64x4",   "64x5",    "64x6",    "128x1",   "128x2",    "128x3",    "128x4",   "128x5",
    "128x6",  "32x10",   "8x4",     "16x10",   "8x5",      "",         "",        "8x3",
    "8xAUTO", "16xAUTO", "32xAUTO", "64xAUTO", "128xAUTO", "256xAUTO", "768xAUTO"};

template <size_t count>
std::string name_of(const char* const (&names)[count], uint32_t number) {
  if (number < count && *names[number] != '\0') return names[number];
  return fmt::format("#{}", number);
}

}  // namespace

LtAlgorithm algorithm_of(const CublasLt& library, const cublasLtMatmulAlgo_t& bytes) {
  LtAlgorithm read;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
    size_t written = 0;
    library.cublasLtMatmulAlgoConfigGetAttribute(&bytes, attribute, &value, sizeof(value),
                                                 &written);
  };
  get(CUBLASLT_ALGO_CONFIG_ID, read.id);
  get(CUBLASLT_ALGO_CONFIG_TILE_ID, read.tile);
  get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, read.split);
  get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, read.reduction);
  get(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, read.swizzle);
  get(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, read.option);
  get(CUBLASLT_ALGO_CONFIG_STAGES_ID, read.stages);
  get(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, read.inner_shape);
  get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, read.cluster);
  return read;
}

std::string text_of(const LtAlgorithm& algorithm) {
  std::string text = fmt::format("algorithm {}", algorithm.id);
  if (algorithm.tile != 0) text += ", tile " + tile_text(algorithm.tile);
  if (algorithm.stages != 0) text += ", stages " + stages_text(algorithm.stages);
  if (algorithm.split != 1) text += fmt::format(", split {}", algorithm.split);
  const auto add = [&](const char* name, uint32_t number) {
    if (number != 0) text += fmt::format(", {} {}", name, number);
  };
  add("reduction", algorithm.reduction);
  add("swizzle", algorithm.swizzle);
  add("inner shape", algorithm.inner_shape);
  add("cluster", algorithm.cluster);
  add("option", algorithm.option);
  return text;
}

std::string tile_text(uint32_t tile) { return name_of(kTiles, tile); }
std::string stages_text(uint32_t stages) { return name_of(kStages, stages); }

}  // namespace anneal::cuda
