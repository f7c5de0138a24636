// Progress of the public calls of libbuilder.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/engine/builder/build_options.h"

namespace anneal {

// Reports the steps of a build to the application's callback. Their times are not known before, so
// each step takes a part of the share that is left.
class BuildProgress {
 public:
  explicit BuildProgress(ProgressCallback callback) : callback_(std::move(callback)) {}

  // Fails with kCancelled if the callback says so.
  void begin(std::string_view what) {
    share_ += (1 - share_) * kStep;
    tell({std::string(what), share_, {}});
  }
  // For a file that is written in the rest of the share.
  WriteProgress writing(std::string_view what) {
    const double from = share_;
    return [this, from, what = std::string(what)](uint64_t done, uint64_t total) {
      constexpr double kGigabyte = 1e9;
      const auto written = static_cast<double>(done), all = static_cast<double>(total);
      share_ = std::max(share_, from + (kWritten - from) * written / all);
      tell({fmt::format("{}: {:.1f} of {:.1f} GB", what, written / kGigabyte, all / kGigabyte),
            share_,
            {}});
    };
  }
  // The last call. It is too late to cancel.
  void end() {
    if (callback_) callback_({"done", 1, 0.0});
  }
  // For a call that takes the share from here to `end`.
  ProgressCallback part(double end) {
    const double from = share_;
    return [this, from, end](const Progress& at) {
      share_ = from + (end - from) * at.share;
      tell({at.what, share_, at.seconds_left});
      return true;
    };
  }

 private:
  static constexpr double kStep = 0.03, kWritten = 0.999;
  void tell(const Progress& progress) const {
    if (callback_ && !callback_(progress)) fail(ErrorCode::kCancelled, "the build was cancelled");
  }
  ProgressCallback callback_;
  double share_ = 0;
};

inline void require_samples(const std::shared_ptr<const Dataset>& samples) {
  if (!samples) fail(ErrorCode::kInvalidArgument, "there are no samples: the dataset is null");
}

}  // namespace anneal
