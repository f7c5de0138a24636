// The search for the fastest engine of an f32 model within an accuracy budget, by measurement.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"
#include "anneal/engine/tune/search/split_samples.h"
#include "anneal/graph/graph.h"

namespace anneal {

struct TuneResult {
  Frontier frontier;  // of points, commands are empty
  EngineFile engine;  // the chosen one, for the target
  bool was_resumed = false;
};
// EngineFile::recipe of an engine that is built with these precisions.
using RecipeOfPrecision = std::function<std::string(const PrecisionOptions&)>;

// Calibrates. Lowers one group of layers at a time, to measure the effect on the answers to the
// samples that the model is least sure of. Measures the time of each group in each precision. From
// both finds all mixes that could be best (mix_front); judges some mixes, along the front and
// around the budget, on the search samples; times them in turn; takes the fastest within the
// budget, and confirms it on samples held out from the search, or the next mix that passes there.
// With the same journal, or modelled times, an interrupted run ends with the same result. Fails as
// calibrating, building, running and judging do, with kCancelled, and with kInvalidArgument on
// samples that lack the metric's labels, on several targets, and without a metric. The journal
// stays.
TuneResult tune(const Graph& model, const TuneSamples& samples,
                const std::shared_ptr<const Metric>& metric, const BuildOptions& options,
                const RecipeOfPrecision& recipe = {});

}  // namespace anneal
