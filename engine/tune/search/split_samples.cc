#include "anneal/engine/tune/search/split_samples.h"

#include <fmt/format.h>

#include "anneal/core/fail.h"

namespace anneal {

TuneSamples split_samples(const std::shared_ptr<const Dataset>& samples, int64_t calibrate,
                          int64_t search) {
  const int64_t all = samples->size();
  if (calibrate == 0) calibrate = all / 5;
  if (search == 0) search = all * 3 / 10;
  if (calibrate < 1 || search < 1 || calibrate + search >= all)
    fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} samples cannot be split into {} to calibrate, {} to search with and others "
                    "to confirm",
                    all, calibrate, search));
  const auto others = subset(samples, fmt::format("holdout:{}", calibrate));
  return {subset(samples, fmt::format("hash:{}", calibrate)),
          subset(others, fmt::format("hash:{}", search)),
          subset(others, fmt::format("holdout:{}", search))};
}

}  // namespace anneal
