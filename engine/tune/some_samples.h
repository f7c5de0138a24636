// Parts of a set of samples.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// Those at the indices given, in that order. REQUIRES: indices of samples
std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> samples,
                                            std::vector<int64_t> which);

}  // namespace anneal
