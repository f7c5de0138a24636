// Parts of a dataset beyond those that the public interface has.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// The samples at the indices, in that order. REQUIRES: indices of samples
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> samples,
                                      std::vector<int64_t> indices);
// The hash behind `hash:`, `holdout:` and `part:`: 64-bit FNV-1a, its bits mixed by MurmurHash3's
// finalizer. It will not change.
uint64_t sample_hash(std::string_view name);

}  // namespace anneal
