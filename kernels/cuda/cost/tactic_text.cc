#include "anneal/kernels/cuda/cost/tactic_text.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "anneal/core/bytes.h"
#include "anneal/kernels/cuda/cost/depthwise_config.h"
#include "anneal/kernels/cuda/cost/mma_config.h"
#include "anneal/kernels/cuda/cost/vendor_tactic.h"

namespace anneal::cuda {
namespace {

constexpr size_t kTableBytes = 256;

// As tactic_of() writes the configurations of products.
constexpr size_t kNumbers = 6;
std::array<int, kNumbers> numbers_of(std::span<const std::byte> tactic) {
  ByteReader from(tactic, "tactic");
  std::array<int, kNumbers> numbers = {};
  for (int& number : numbers) number = from.number<uint16_t>();
  return numbers;
}

}  // namespace

std::string tactic_text(std::string_view kernel, std::span<const std::byte> tactic) {
  if (tactic.empty()) return {};
  if (kernel.starts_with("cudnn.") || kernel.starts_with("cublaslt."))
    if (const auto vendor = vendor_tactic_of(tactic)) return vendor->algorithm;
  if (kernel == "cuda.recurrent.steps")  // of its product, behind the number of that kernel
    return tactic_text(tactic[0] == std::byte{0} ? "cuda.matmul.mma" : "cuda.matmul.simt",
                       tactic.subspan(1));
  if (tactic.size() == kTableBytes) return "table of 256 values";
  if (tactic.size() == kNumbers * sizeof(uint16_t) && kernel.starts_with("cuda.")) {
    const auto [rows, columns, depth, fourth, fifth, sixth] = numbers_of(tactic);
    return kernel.ends_with(".mma")
               ? to_string(MmaConfig{rows, columns, depth, fourth, fifth, sixth})
               : to_string(TileConfig{rows, columns, depth, fourth, fifth, sixth});
  }
  if (tactic.size() == 3 && kernel == "cuda.conv.depthwise")
    return to_string(DepthwiseConfig{std::to_integer<int>(tactic[0]),
                                     std::to_integer<int>(tactic[1]), tactic[2] != std::byte{0}});
  return fmt::format("{} byte{}", tactic.size(), tactic.size() == 1 ? "" : "s");
}

}  // namespace anneal::cuda
