// Outputs that look like the scores of a classifier, and the classes that lead.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

// [samples, classes] in whatever shape: [10], [N,10], [N,10,1,1].
struct ScoreLayout {
  int64_t samples = 1, classes = 0;
};
// For a float output with one axis of `least` elements or more, axis 0 being the batch if there are
// several axes, and 1 element along all others.
std::optional<ScoreLayout> score_layout(DataType dtype, const Dims& dims, int64_t least = 10);

struct RankedClass {
  int64_t index = 0;
  double score = 0;
};
// The k best classes of a sample, best first; of equals the lower index, NaN last. scores: dense.
std::vector<RankedClass> best_classes(const Tensor& scores, const ScoreLayout& layout,
                                      int64_t sample, int64_t k);

}  // namespace anneal
