// A cache of samples, which are read and decoded once.
#pragma once
#include <memory>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// The same samples, kept in memory when they are first read, up to `most_bytes` bytes; all others
// are read anew each time.
std::shared_ptr<const Dataset> kept_samples(std::shared_ptr<const Dataset> samples,
                                            size_t most_bytes);

}  // namespace anneal
