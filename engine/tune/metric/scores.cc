#include "anneal/engine/tune/metric/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/data/elements.h"

namespace anneal {

std::optional<ScoreLayout> score_layout(DataType dtype, const Dims& dims, int64_t least) {
  if (!is_float(dtype) || dims.rank() == 0 || count(dims) == 0) return std::nullopt;
  ScoreLayout layout;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (axis == 0 && dims.rank() > 1) {
      layout.samples = dims[0];
    } else if (dims[axis] != 1) {
      if (layout.classes != 0) return std::nullopt;
      layout.classes = dims[axis];
    }
  }
  if (layout.classes < least) return std::nullopt;
  return layout;
}

std::vector<RankedClass> best_classes(const Tensor& scores, const ScoreLayout& layout,
                                      int64_t sample, int64_t k) {
  std::vector<RankedClass> ranked(static_cast<size_t>(layout.classes));
  const size_t element = size_of(scores.dtype());
  const std::byte* row =
      scores.bytes().data() + static_cast<size_t>(sample * layout.classes) * element;
  for (size_t i = 0; i < ranked.size(); ++i)
    ranked[i] = {static_cast<int64_t>(i), read_element(scores.dtype(), row + i * element)};
  const auto better = [](const RankedClass& a, const RankedClass& b) {
    if (std::isnan(a.score) || std::isnan(b.score))
      return std::isnan(a.score) == std::isnan(b.score) ? a.index < b.index : std::isnan(b.score);
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  };
  const auto kept = static_cast<ptrdiff_t>(std::min(k, layout.classes));
  std::partial_sort(ranked.begin(), ranked.begin() + kept, ranked.end(), better);
  ranked.resize(static_cast<size_t>(kept));
  return ranked;
}

}  // namespace anneal
