// The scales of Quantize and Dequantize layers with constant parameters.
#pragma once
#include <optional>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// real = (integer - zeros[i]) * scales[i], where i is 0, or counts along `axis`.
struct Scaling {
  DataType integer = DataType::kU8, real = DataType::kF32;
  std::vector<float> scales{};
  std::vector<int32_t> zeros{};  // as many as scales, or one
  int64_t axis = 0;              // of x; 0 if there is one scale
  bool per_tensor() const { return scales.size() == 1; }
  bool has_zeros() const;
  bool operator==(const Scaling&) const = default;
};

// The scaling of a layer without epilogue, with integers of 8 or 16 bits and reals of at most 32
// bits. nullopt: another layer, a scale for each block, or parameters that are known only at run
// time.
std::optional<Scaling> scaling_of(const Graph& graph, LayerId id);

// A value that Dequantize gives of `integers`.
struct DequantizedValue {
  ValueId integers = ValueId::kNone;
  LayerId layer = LayerId::kNone;
  Scaling scaling;
};
std::optional<DequantizedValue> dequantized(const Graph& graph, ValueId value);

// A product by quantized weights takes no smaller blocks.
inline constexpr int64_t kLeastWeightBlock = 16;

// Constants to give a layer, named after `name`: the scales, and the zero points, kNone if they are
// 0. Scalars, or along one axis.
ValueId add_scales(Graph& graph, const std::string& name, const Scaling& scaling);
ValueId add_zeros(Graph& graph, const std::string& name, const Scaling& scaling);

}  // namespace anneal
