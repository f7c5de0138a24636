// The storage type of each value and the type of each product of a graph, where 16 bits are
// allowed.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/precision.h"
#include "anneal/optimizer/precision/value_need.h"

namespace anneal {

struct HalfStorage {
  std::unordered_map<ValueId, DataType> values;    // f32 ones that become f16 or bf16
  std::unordered_map<LayerId, DataType> products;  // those of f32 that shall compute in 16 bits
  struct Reason {
    std::string subject, text;  // a layer, and why it, or its result, stays f32
  };
  std::vector<Reason> reasons;
};

// Values that no 16-bit product reads, even by way of others, stay f32; so do those whose range or
// rounding would do harm: docs/quantization.md has the rules.
// If f16 and bf16 are both allowed and the target computes in both, or in neither, a layer takes
// bf16 where the range of f16 may not suffice, else f16. threads: 0: one per core.
HalfStorage choose_storage(const Graph& graph, const PrecisionOptions& options,
                           const NativeHalves& native, const NeedAnalysis& needs, int threads);

}  // namespace anneal
