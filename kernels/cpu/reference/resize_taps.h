// The taps of Resize: along each axis, an output position is a few input positions with weights.
#pragma once
#include <cstdint>
#include <span>

#include "anneal/core/tensor.h"
#include "anneal/graph/op/ops.h"

namespace anneal::cpu {

struct Tap {
  int64_t position = 0;  // in x, kOutside: the output element is the extrapolation value
  double weight = 1;
};
inline constexpr int64_t kOutside = -1;

// One resized axis. `scale` is output over input, by which ONNX means the given factor even where
// that times the input size is not the output size.
struct ResizeAxis {
  int64_t in = 0, out = 0;
  double scale = 1;
  double out_length = 0;  // scale * in
  double roi_begin = 0, roi_end = 1;
  bool exact = false;  // scale is out / in
};

// The values of the inputs, null where absent. Without those of an input (while preparing) scales
// are taken as the least that they can be.
struct ResizeValues {
  const TensorView* sizes = nullptr;
  const TensorView* scales = nullptr;
};
// The axis op.axes[i]: scales as given, or from the sizes.
ResizeAxis resize_axis(const Resize& op, size_t i, const Dims& x, const Dims& y,
                       const ResizeValues& values);

// How far taps reach to the left, and how many there are. Antialiasing widens the filter by the
// factor by which the image shrinks.
struct TapSupport {
  double stretch = 1;
  int64_t first = 0, taps = 1;
};
TapSupport support_of(const Resize& op, const ResizeAxis& axis);

// The taps of one output position, support.taps of them. Positions outside repeat the edge, unless
// they are excluded.
void fill_taps(const Resize& op, const ResizeAxis& axis, const TapSupport& support, int64_t output,
               Tap* taps);

}  // namespace anneal::cpu
