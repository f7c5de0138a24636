// What NonMaxSuppression keeps at most, from its inputs on the host.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "anneal/core/tensor_view.h"

namespace anneal {

struct NmsLimits {
  int64_t most = 0;  // boxes per class
  float overlap = 0;
  std::optional<float> score;
};
// inputs: of the layer, with data. Fails with kInvalidArgument.
NmsLimits nms_limits(std::span<const TensorView> inputs);

}  // namespace anneal
