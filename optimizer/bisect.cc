#include "anneal/optimizer/bisect.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

struct OptimizedGraph {
  Graph graph;
  std::vector<PassRecord> rewrites;
};

OptimizedGraph optimize(const Graph& graph, std::span<const Pass> passes, PassOptions options,
                        uint64_t limit) {
  options.rewrite_limit = limit;
  OptimizedGraph result{graph.clone(), {}};
  for (PassRecord& record : run_pipeline(result.graph, passes, options))
    if (!record.refused) result.rewrites.push_back(std::move(record));
  return result;
}

std::vector<std::string> lines_of(const Graph& graph) {
  std::vector<std::string> lines;
  std::istringstream text(to_string(graph));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string lines_without(const std::vector<std::string>& lines,
                          const std::vector<std::string>& others) {
  const std::multiset<std::string> known(others.begin(), others.end());
  std::string text;
  for (const std::string& line : lines)
    if (!known.contains(line)) text += line + "\n";
  return text;
}

}  // namespace

std::optional<Harm> find_harm(const Graph& graph, std::span<const Pass> passes,
                              const PassOptions& options,
                              const std::function<bool(const Graph&)>& is_right) {
  const OptimizedGraph whole =
      optimize(graph, passes, options, std::numeric_limits<uint64_t>::max());
  if (is_right(whole.graph)) return std::nullopt;
  if (!is_right(graph))
    fail(ErrorCode::kInvalidArgument, "the results are wrong before the first rewrite, too");
  uint64_t good = 0, bad = whole.rewrites.size();
  while (bad - good > 1) {
    const uint64_t middle = good + (bad - good) / 2;
    (is_right(optimize(graph, passes, options, middle).graph) ? good : bad) = middle;
  }
  Harm harm;
  harm.rewrite = whole.rewrites[bad - 1];
  harm.number = bad;
  harm.of = whole.rewrites.size();
  for (uint64_t i = 0; i < harm.of; ++i) {
    if (whole.rewrites[i].pass != harm.rewrite.pass) continue;
    ++harm.of_in_pass;
    harm.number_in_pass += i < bad ? 1 : 0;
  }
  const auto before = lines_of(optimize(graph, passes, options, good).graph);
  const auto after = lines_of(optimize(graph, passes, options, bad).graph);
  harm.before = lines_without(before, after);
  harm.after = lines_without(after, before);
  return harm;
}

}  // namespace anneal
