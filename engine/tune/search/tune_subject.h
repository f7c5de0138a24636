// What the findings of tuning depend on, for its journal; and a name for a mix.
#pragma once
#include <span>
#include <string>

#include "anneal/engine/tune/search/tune.h"

namespace anneal {

// A letter for each precision: "iibf".
std::string key_of(std::span<const Precision> precisions);

// The model, what is asked for, and the samples: names, labels, and what some of them hold, for
// flags may change what is read under the same name. Fails as reading samples does.
std::string tuning_subject(const Graph& model, const TuneSamples& samples,
                           const TuneOptions& options, std::span<const Precision> precisions,
                           bool is_timed);

}  // namespace anneal
