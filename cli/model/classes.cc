#include "anneal/cli/model/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/text_file.h"

namespace anneal {
namespace {

constexpr int64_t kMostSamplesShown = 8;

}  // namespace

std::vector<std::string> read_class_names(const std::string& path) {
  const std::string text = read_text(path);
  std::vector<std::string> names;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    names.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (names.empty()) refuse_argument(fmt::format("{} holds no labels; write one per line", path));
  return names;
}

std::string best_classes_text(const Tensor& output, const std::vector<std::string>& names,
                              int64_t k) {
  const auto classes = best_classes(output, k, kMostSamplesShown);
  if (!classes) return {};
  if (!names.empty() && static_cast<int64_t>(names.size()) != classes->classes)
    refuse_argument(
        fmt::format("--labels has {} lines, the output has {} classes; give a file with a line for "
                    "each class",
                    names.size(), classes->classes));
  std::string text;
  for (size_t sample = 0; sample < classes->best.size(); ++sample) {
    if (classes->samples > 1) text += fmt::format("  sample {}\n", sample);
    Rows rows;
    for (const RankedClass& ranked : classes->best[sample])
      rows.push_back({"  ", number_text(ranked.score, 4), fmt::format("{}", ranked.index),
                      names.empty() ? "" : names[static_cast<size_t>(ranked.index)]});
    text += table_text(rows, {false, true, true, false});
  }
  if (classes->samples > kMostSamplesShown)
    text += fmt::format("  and {} more samples\n", classes->samples - kMostSamplesShown);
  return text;
}

}  // namespace anneal
