#include "anneal/engine/builder/timing/timing_card.h"

#include <fmt/format.h>

#include "anneal/core/error.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {

TimingCard open_timing_card(const std::string& target, const Device& device) {
  if (is_card(device)) return {cuda_backend().open(target), {}};
  if (!device.target().starts_with("sm_"))
    return {{}, fmt::format("times on {} are not those of a card", device.target())};
  TimingCard card;
  try {
    card.device = cuda_backend().open("cuda");
  } catch (const Error& error) {
    return {{},
            fmt::format("{}; run anneal time-kernels on a machine with such a card, and build "
                        "with its cache",
                        error.what())};
  }
  if (card.device->target() == device.target()) return card;
  return {{},
          fmt::format("the card here is of {}; run anneal time-kernels where {} is, and build "
                      "with its cache",
                      card.device->target(), device.target())};
}

}  // namespace anneal
