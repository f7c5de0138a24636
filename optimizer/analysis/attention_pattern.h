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
// the accumulator). factors: what the accumulator is multiplied with before it is rounded.
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
// rounding, and giving 0 where all scores of a row are hidden.
struct WeightRule {
  bool hidden_is_zero = false;
};
std::optional<WeightRule> weight_rule(const Graph& graph, const AttentionPattern& pattern,
                                      const ScoreProgram& score);

// The value that this one is times a factor, if it is that.
std::optional<ValueId> unscaled(const Graph& graph, ValueId value, ScaleFactor& factor);

}  // namespace anneal
