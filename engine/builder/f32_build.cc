#include "anneal/engine/builder/f32_build.h"
#include "anneal/core/fail.h"
#include "anneal/optimizer/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace anneal {
namespace {

bool wants_8_bits(const PrecisionOptions& precision) {
  return precision.allows(Precision::kI8) ||
         std::ranges::any_of(precision.layers, [](const LayerPrecision& layer) {
           return layer.precision == Precision::kI8;
         });
}

// The passes that run, from the first one on that reads what is asked for.
std::vector<Pass> passes_of_precision(const PassOptions& options) {
  const std::string_view first = !options.precision.weight_format.empty() ? "quantize_weights"
                                 : wants_8_bits(options.precision)        ? "insert_quantize"
                                                                          : "assign_precision";
  const auto all = default_pipeline();
  const auto found = std::ranges::find(all, first, &Pass::name);
  check(found != all.end(), "the pipeline has the passes of precision");
  std::vector<Pass> passes;
  std::copy_if(found, all.end(), std::back_inserter(passes),
               [&](const Pass& pass) { return why_left_out(pass, options).empty(); });
  return passes;
}

// The last pass that runs before them; empty: none.
std::string_view last_pass_in_common(const PassOptions& options) {
  std::string_view last;
  const std::vector<Pass> own = passes_of_precision(options);
  for (const Pass& pass : default_pipeline()) {
    if (!own.empty() && pass.name == own.front().name) break;
    if (why_left_out(pass, options).empty()) last = pass.name;
  }
  return last;
}

// targets: "cpu,cpu:avx2"
bool is_among(const std::string& target, std::string_view targets) {
  return fmt::format(",{},", targets).find("," + target + ",") != std::string::npos;
}

}  // namespace

F32Build::F32Build(GraphBuildOptions options, std::string target)
    : options_(std::move(options)), target_(std::move(target)) {}

GraphBuildOptions F32Build::watched() {
  GraphBuildOptions options = options_;
  const std::string_view last = last_pass_in_common(options_.passes);
  if (last.empty() || options_.passes.rewrite_limit != std::numeric_limits<uint64_t>::max())
    return options;
  options.after_pass = [this, last](const PassEvent& event, std::string_view targets) {
    if (event.pass.name == last && is_among(target_, targets)) kept_ = event.graph.clone();
    if (options_.after_pass) options_.after_pass(event, targets);
  };
  return options;
}

GraphBuildOptions F32Build::silent() const {
  GraphBuildOptions options = options_;
  options.targets = {target_};
  options.timing = {};
  options.after_pass = {};
  options.allow_fallback = true;
  options.progress = [](std::string_view) {};
  return options;
}

EngineFile F32Build::build(const Graph& model) const {
  GraphBuildOptions options = silent();
  const PrecisionOptions asked = options.passes.precision;
  options.passes.precision = {};
  if (!kept_) {
    // Channels are equalized by the table in f32, too.
    options.passes.precision.ranges = asked.ranges;
    options.passes.precision.symmetric = asked.symmetric;
    return anneal::build(model.clone(), options);
  }
  // The graph is no longer the one that the table's fingerprint is of; these passes read no table.
  const std::vector<Pass> passes = passes_of_precision(options_.passes);
  options.passes.only.clear();
  // It copies weights, and changes no result.
  constexpr std::string_view kLeftOut = "merge_siblings";
  check(std::ranges::count(default_pipeline(), kLeftOut, &Pass::name) == 1,
        "the pipeline has the pass that is left out");
  for (const Pass& pass : passes)
    if (pass.name != kLeftOut) options.passes.only.emplace_back(pass.name);
  if (options.passes.only.empty()) options.passes.skip = {std::string(kAllPasses)};
  return anneal::build(kept_->clone(), options);
}

}  // namespace anneal
