// Samples divided for calibration, the search and the confirmation.
#pragma once
#include <cstdint>
#include <memory>

#include "anneal/engine/data/dataset.h"

namespace anneal {

// Each sample is in one of the three at most.
struct TuneSamples {
  std::shared_ptr<const Dataset> calibrate, search, confirm;
};
// By the hashes of the samples' names. Sizes of the first two sets; 0: 20 % and 30 %. Fails with
// kInvalidArgument if nothing is left for one of the three.
TuneSamples split_samples(const std::shared_ptr<const Dataset>& samples, int64_t calibrate = 0,
                          int64_t search = 0);

}  // namespace anneal
