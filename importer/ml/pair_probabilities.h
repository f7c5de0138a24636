// Probabilities of classes from those of pairs of classes.
#pragma once
#include <cstdint>

#include "anneal/importer/node/node.h"

namespace anneal {

// pairs: f32[rows, classes * (classes - 1) / 2], the probability of the first class of each pair
// (0 and 1, 0 and 2, ..., 1 and 2, ...). The result is f32[rows, classes]. It has the numbers of
// libsvm's iteration, which ends early, and not those of its limit: T.-F. Wu, C.-J. Lin, R. C.
// Weng, "Probability estimates for multi-class classification by pairwise coupling", algorithm 2.
ValueId coupled_probabilities(Node& node, ValueId pairs, int64_t classes);

}  // namespace anneal
