// Probabilities of classes from those of pairs of classes.
#pragma once
#include <cstdint>

#include "anneal/core/parallel.h"
#include "anneal/importer/node/node.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {

// pairs: f32[rows, classes * (classes - 1) / 2], a number for each pair of classes (0 and 1, 0 and
// 2, ..., 1 and 2, ...). The result is f32[rows, classes, classes]: of(number) for the first class
// of a pair against the second, 1 - of(number) the other way round, and 0 on the diagonal.
ValueId pair_matrix(Node& node, ValueId pairs, int64_t classes, std::string_view name,
                    FunctionRef<Expression(Expression)> of);

// pairs: f32[rows, pairs] as above, the probability of the first class. The result is f32[rows,
// classes]. It has the numbers of libsvm's iteration, which ends early, and not those of its limit:
// T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class classification by
// pairwise coupling", algorithm 2.
ValueId coupled_probabilities(Node& node, ValueId pairs, int64_t classes);

}  // namespace anneal
