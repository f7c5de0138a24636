#include "anneal/optimizer/precision/integer_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/weight_format.h"

namespace anneal {
namespace {

// For more rows a product by float weights takes less time even if they come from memory.
constexpr int64_t kMostRows = 8;
constexpr int64_t kMostRowsBesideHalves = 4;  // where the target computes in 16 bits
// The part of PassOptions::cached_weight_bytes that a cache shared by all cores holds.
constexpr double kSharedCache = 8;

// Whether a product of this type would compute in 16 bits, whose weights take half of the memory.
bool has_halves(DataType dtype, const PassOptions& options) {
  const PrecisionOptions& precision = options.precision;
  return options.native.has(dtype) || (precision.allows(Precision::kF16) && options.native.f16) ||
         (precision.allows(Precision::kBF16) && options.native.bf16);
}

DataType result_type(const Graph& graph, LayerId product) {
  return graph.value(graph.layer(product).outputs[0]).type().dtype;
}

// Of weights as an importer gives them: all zero points are 0, since a model has others as floats,
// whose part another product has.
bool lacks_zero_points(const Graph& graph, LayerId product) {
  constexpr size_t kZeros = 3;
  const Layer& layer = graph.layer(product);
  const auto* op = op_as<MatMul>(graph, product);
  if (op->b_encoding == WeightEncoding::kIntegers || layer.op_input_count <= int{kZeros} ||
      layer.inputs[kZeros] == ValueId::kNone)
    return false;
  const Tensor* zeros = graph.constant(layer.inputs[kZeros]);
  return zeros &&
         std::ranges::all_of(zeros->bytes(), [](std::byte zero) { return zero == std::byte{0}; });
}

}  // namespace

double weight_bytes_as_floats(const Graph& graph, const PassOptions& options) {
  double bytes = 0;
  for (const LayerId id : graph.order()) {
    const auto* product = op_as<MatMul>(graph, id);
    if (!product) continue;
    ValueId weights = graph.layer(id).inputs[1];
    if (const LayerId made_by = producer(graph, weights); op_as<Dequantize>(graph, made_by))
      weights = graph.layer(made_by).inputs[0];
    if (const Tensor* tensor = graph.constant(weights))
      bytes += static_cast<double>(tensor->count()) * codes_in_byte(product->b_encoding) *
               (has_halves(result_type(graph, id), options) ? 2 : 4);
  }
  return bytes;
}

bool rows_may_be_rounded(const Graph& graph, LayerId product, const PassOptions& options,
                         const LayerPrecisions& asked) {
  // Kernels of GPUs round no rows. Where another product subtracts the zero points, both products
  // may be much larger than their difference.
  if (options.exact || options.native.f16 || lacks_zero_points(graph, product)) return false;
  return op_as<MatMul>(graph, product)->may_round_a ||
         (parse_weight_format(options.precision.weight_format).bits == 4 &&
          !asked.of(graph.layer(product)));
}

std::string why_floats_are_faster(const Graph& graph, LayerId product, int64_t rows, double bytes,
                                  const PassOptions& options) {
  if (!options.precision.weight_format.empty()) return {};  // memory is what was asked for
  const bool halves = has_halves(result_type(graph, product), options);
  if (rows > (halves ? kMostRowsBesideHalves : kMostRows))
    return fmt::format("floats take less time for {} rows", rows);
  return why_cached(rows, bytes, options);
}

std::string why_cached(int64_t rows, double bytes, const PassOptions& options) {
  if (!options.precision.weight_format.empty()) return {};  // memory is what was asked for
  const double cached =
      static_cast<double>(options.cached_weight_bytes) * (rows > 1 ? kSharedCache : 1);
  if (bytes >= cached) return {};
  return fmt::format("those of the model are {:.0f} bytes, which stay in a cache", bytes);
}

}  // namespace anneal
