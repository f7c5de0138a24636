#include "anneal/engine/tune/metric/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
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

std::vector<std::string> read_labels(const std::string& path) {
  const FileBytes file = read_file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  std::vector<std::string> labels;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    labels.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (labels.empty())
    fail(ErrorCode::kInvalidArgument, fmt::format("{} holds no labels; write one per line", path));
  return labels;
}

}  // namespace anneal
