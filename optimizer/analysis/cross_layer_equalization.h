// Cross-layer equalization: channels between products that can be multiplied by powers of two
// without a change of results.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/graph/graph.h"

namespace anneal {

// The layers between a layer's results and the products that read them; or, without a writer, a
// value and the products that read it.
struct ScalableChannels {
  LayerId writer = LayerId::kNone;  // a Conv or MatMul by constant weights; kNone: a layer is added
  ValueId value = ValueId::kNone;   // that the writer gives, or that is multiplied for the readers
  int axis = 0;                     // of all values: the channels
  int64_t count = 0;                // of channels
  std::vector<LayerId> between;     // Pointwise layers, poolings and reductions, in order
  std::vector<LayerId> readers;     // Conv and MatMul layers by constant weights
};

// nullopt: the layer is no such writer, or something that reads its results, by way of layers for
// which f * x means f * y, is no such reader.
std::optional<ScalableChannels> scalable_channels(const Graph& graph, LayerId writer);

// For the readers of a value that are products; other readers keep the unscaled value. nullopt:
// there is no such reader.
std::optional<ScalableChannels> scalable_reads(const Graph& graph, ValueId value);

// Multiplies channel i by 2^exponents[i] in the writer's results, or in a scaled copy that is read
// in place of the value, and by its inverse in the readers' weights. The answers stay the same to
// the bit, as long as data times factors are normal numbers. The values in between, which do not,
// are called NAME/equalized. False, and nothing changes, where a weight or a constant would leave
// the normal numbers. REQUIRES: exponents.size() == channels.count
bool scale_channels(Graph& graph, const ScalableChannels& channels, std::span<const int> exponents);

}  // namespace anneal
