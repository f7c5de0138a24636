// The precision options of a mix that tuning tried.
#pragma once
#include <span>

#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

// How a build makes a mix; used by `--mix` and the sample. REQUIRES: as many precisions as groups
PrecisionOptions mix_options(std::span<const PrecisionGroup> groups,
                             std::span<const Precision> precisions, SharedTable ranges,
                             bool symmetric);

}  // namespace anneal
