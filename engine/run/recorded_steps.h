// Steps on a device that are recorded once (a CUDA graph) and replayed from then on.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "anneal/core/device.h"
#include "anneal/core/parallel.h"

namespace anneal {

// Does on the stream what `put` puts on it: by playing `recording`, which is made first if it is
// null and the device records; else by calling `put`. If recording failed, the result is why, and
// `put` was called in its place. An error that does not come from recording is thrown, since `put`
// meets it again.
std::optional<std::string> play_or_put(DeviceStream& on, std::unique_ptr<Recording>& recording,
                                       FunctionRef<void()> put);

}  // namespace anneal
