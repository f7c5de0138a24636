// The source element of each padded element.
#pragma once
#include <algorithm>
#include <cstdint>

#include "anneal/core/fail.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

// Which element of an axis of `size` is at `position`, that may lie outside; -1: none, a constant.
inline int64_t padded_position(PadMode mode, int64_t position, int64_t size) {
  if (position >= 0 && position < size) return position;
  if (mode == PadMode::kConstant) return -1;
  if (size == 0)
    fail(ErrorCode::kInvalidArgument, "Pad: there is nothing to repeat in an empty axis");
  if (mode == PadMode::kEdge) return position < 0 ? 0 : size - 1;
  const int64_t period = mode == PadMode::kWrap ? size : std::max<int64_t>(2 * size - 2, 1);
  const int64_t within = (position % period + period) % period;
  return within < size ? within : period - within;
}

// Elements that a negative pad takes away from `size`.
inline int64_t cropped(int64_t pad, int64_t size) {
  return pad >= 0 ? 0 : pad <= -size ? size : -pad;
}

}  // namespace anneal::cpu
