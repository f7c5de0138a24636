// The card that kernels of a plan are timed on.
#pragma once
#include <memory>
#include <string>

#include "anneal/core/device.h"

namespace anneal {

// A card of this machine, with code of its own; or why there is none.
struct TimingCard {
  std::unique_ptr<Device> device = {};
  std::string why_not = {};
};
// The card itself if the plan's device, opened as `target`, is one; for a device to build for,
// cuda:0 if it is of that architecture. Never the emulated device, whose times are no card's.
TimingCard open_timing_card(const std::string& target, const Device& device);

}  // namespace anneal
