// The subject of a tuning journal: everything that findings depend on. And the key of a mix.
#pragma once
#include <span>
#include <string>

#include "anneal/engine/tune/search/tune.h"

namespace anneal {

// A letter for each precision: "iibf".
std::string key_of(std::span<const Precision> precisions);

// The model, the options, and the samples: names, labels, and the contents of some, because flags
// may change the contents under the same name. Fails as reading samples does.
std::string tuning_subject(const Graph& model, const TuneSamples& samples,
                           const TuneOptions& options, std::span<const Precision> precisions,
                           bool is_timed);

}  // namespace anneal
