#include "anneal/kernels/nms_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"

namespace anneal {

NmsLimits nms_limits(std::span<const TensorView> inputs) {
  const auto given = [&](size_t i) { return i < inputs.size() && inputs[i].data != nullptr; };
  NmsLimits limits;
  if (given(2)) limits.most = std::max<int64_t>(*inputs[2].as<int64_t>(), 0);
  if (given(3)) limits.overlap = *inputs[3].as<float>();
  if (given(4)) limits.score = *inputs[4].as<float>();
  if (!(limits.overlap >= 0 && limits.overlap <= 1))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("an IoU threshold of {}, which is not in 0..1", limits.overlap));
  return limits;
}

}  // namespace anneal
