#include "anneal/kernels/spatial_resize.h"

namespace anneal {

Result<Resize> spatial_resize(const Resize& op, const Request& request) {
  Resize known = op;
  if (request.op_input_count > 3 && request.inputs[3].present) {
    if (request.inputs[3].constant == nullptr) return refuse("scales known only at run time");
    const auto scales = request.inputs[3].constant->as<float>();
    known.scales.assign(scales.begin(), scales.end());
  }
  const Shape &from = request.inputs[0].type.shape, &to = request.outputs[0].type.shape;
  if (from.rank() < 3 || from.rank() > 5) return refuse("only one to three spatial axes");
  if (known.coordinates == ResizeCoordinates::kTfCropAndResize)
    return refuse("a region of the input");
  if (known.scales.empty() && known.policy != ResizePolicy::kStretch)
    return refuse("one scale for all axes");
  for (size_t i = 0; i < known.axes.size(); ++i) {
    const int axis = static_cast<int>(known.axes[i]);
    if (axis >= 2) continue;
    const bool same = from[axis] == to[axis] && (known.scales.empty() || known.scales[i] == 1);
    if (!same || known.coordinates == ResizeCoordinates::kTfHalfPixelForNn)
      return refuse("images or channels that are resized");
  }
  return known;
}

}  // namespace anneal
