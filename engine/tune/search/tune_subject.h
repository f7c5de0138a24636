// The subject of a tuning journal: everything that findings depend on. And the key of a mix.
#pragma once
#include <span>
#include <string>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/tune/metric/metric.h"
#include "anneal/engine/tune/search/split_samples.h"
#include "anneal/graph/graph.h"

namespace anneal {

// A letter for each precision: "iibf".
std::string key_of(std::span<const Precision> precisions);

// The model, the options, and the samples: names, labels, and the contents of some, because flags
// may change the contents under the same name. Fails as reading samples does.
std::string tuning_subject(const Graph& model, const TuneSamples& samples, const Metric& metric,
                           const BuildOptions& options, std::span<const Precision> precisions,
                           bool is_timed);

}  // namespace anneal
