#include "anneal/engine/run/recorded_steps.h"

#include "anneal/core/fail.h"

namespace anneal {

std::optional<std::string> play_or_put(DeviceStream& on, std::unique_ptr<Recording>& recording,
                                       FunctionRef<void()> put) {
  std::optional<std::string> why_not;
  if (!recording) {
    try {
      recording = on.record([&] { put(); });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;
      why_not = error.what();
    }
  }
  recording ? on.play(*recording) : put();
  return why_not;
}

}  // namespace anneal
