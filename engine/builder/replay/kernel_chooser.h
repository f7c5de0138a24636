// KernelChooser: what chooses between the CPU's kernels for a layer, in place of the order of their
// table.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "anneal/engine/plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// The stage of decisions about kernels that were chosen by their times; the subject is the layer.
inline constexpr std::string_view kTiming = "timing";

class KernelChooser {
 public:
  virtual ~KernelChooser() = default;
  // chosen: what the table's order chose; replaced by another kernel that accepts the request. Its
  // kernel must not run: its packed constants are not filled. The decision to record, if there is
  // one.
  virtual std::optional<Decision> choose(const Backend& backend, const Request& request,
                                         const std::string& layer, KernelChoice& chosen) = 0;
};

}  // namespace anneal
