// The pattern of an attention in a graph: two products with a softmax between them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/graph/graph.h"

namespace anneal {

// MatMul(q, k^T) -> elementwise ... -> Softmax over the last axis -> elementwise ... -> MatMul(.,
// v)
struct AttentionPattern {
  LayerId scores = LayerId::kNone, softmax = LayerId::kNone, weighed = LayerId::kNone;
  std::vector<LayerId> before, after;  // of the softmax, in the order in which they run
  bool read_elsewhere = false;         // scores or weights, by others or as outputs of the graph
};

// The attention pattern around this softmax; nullopt if there is none. Its elementwise layers have
// one result and change the shape only in the grouping of the leading axes (Reshape).
std::optional<AttentionPattern> attention_around(const Graph& graph, LayerId softmax);

// The score as a program of the accumulator of scores, and its further inputs (the first is kNone,
// the accumulator), which is not rounded to 16 bits but where the model casts. factors: what the
// accumulator is multiplied with first.
struct ScoreProgram {
  Program program;
  std::vector<ValueId> inputs;
};
// A factor (or divisor) that q or k is scaled with: a value of one element, or, if that is kNone, a
// number.
struct ScaleFactor {
  ValueId value = ValueId::kNone;
  double number = 1;
  bool divides = false;
};
// Refuses if an elementwise layer needs the scores in a shape that they no longer have, or the
// program is too long.
Result<ScoreProgram> score_program(const Graph& graph, const AttentionPattern& pattern,
                                   const std::vector<ScaleFactor>& factors);

// The effect of the elementwise layers after the softmax on weights. nullopt: anything but
// rounding, and giving 0 where all scores of a row are hidden: where weights are NaN, or by a test
// of the scores or of a mask that hides them.
struct WeightRule {
  bool hidden_is_zero = false;
};
std::optional<WeightRule> weight_rule(const Graph& graph, const AttentionPattern& pattern,
                                      const ScoreProgram& score);

// The product that weights meet, and the layers on the way to it: found.weighed and found.after.
// false: there is none. attention_around() calls it.
bool find_weighed_product(const Graph& graph, ValueId weights, AttentionPattern& found);

// The op of an elementwise layer with one result and without an epilogue; nullptr of others.
const Pointwise* as_elementwise(const Graph& graph, LayerId id);
// A Reshape that keeps the last axis.
bool regroups(const Graph& graph, LayerId id);

// The value that this one is times a factor, if it is that.
std::optional<ValueId> unscaled(const Graph& graph, ValueId value, ScaleFactor& factor);

}  // namespace anneal
