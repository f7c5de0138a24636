// The storage type of each value and the type of each product of a graph, where 16 bits are
// allowed.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "anneal/graph/graph.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/pass.h"
#include "anneal/optimizer/precision.h"
#include "anneal/optimizer/precision/value_need.h"

namespace anneal {

// The op's role (graph/op/op_traits.h), as its fields, epilogues and element types leave it.
HalfRole role_of(const Graph& graph, LayerId id);

// The op's inputs that share its data's type, and those whose types a program tells: of the op
// itself, as the op's input and the program's.
struct DataInputs {
  std::vector<size_t> data;
  std::vector<std::pair<size_t, int>> of_program;
};
DataInputs data_inputs(const Layer& layer);

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
// bf16 where the range of f16 may not suffice, else f16.
HalfStorage choose_storage(const Graph& graph, const PrecisionOptions& options,
                           const NativeHalves& native, const NeedAnalysis& needs);

}  // namespace anneal
