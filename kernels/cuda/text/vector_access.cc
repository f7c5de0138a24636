#include "anneal/kernels/cuda/text/vector_access.h"

#include <optional>

namespace anneal::cuda {
namespace {

// Whether the stride of an axis moves from one vector to another.
bool is_stepped(const VectorAccess& access, int axis) {
  return access.is_linear ? axis == 0 : axis != access.axis;
}

}  // namespace

int64_t vector_elements(const Operand& operand, int axis, Size size, int64_t most) {
  if (!(operand.strides[axis] == Size(1)) || !size.known()) return 1;
  const auto allows = [&](int64_t elements) {
    if (size.value() % elements != 0) return false;
    for (int other = 0; other < operand.strides.rank(); ++other) {
      const Size stride = operand.strides[other];
      const bool matters = other != axis && !(operand.type.shape[other] == Size(1));
      if (matters && stride.known() && stride.value() % elements != 0) return false;
    }
    return true;
  };
  int64_t elements = most;
  while (elements > 1 && !allows(elements)) elements /= 2;
  return elements;
}

bool has_whole_strides(const VectorAccess& access, const Operand& operand, const SizeTable& sizes) {
  std::optional<SizeTable> own;  // to compute with
  const auto is_whole = [&](Size stride) {
    if (stride.known()) return stride.value() % access.elements == 0;
    if (stride.is_unknown()) return false;
    if (!own) own = sizes;
    const Size vectors = own->floor_div(stride, Size(access.elements));
    return own->mul(vectors, Size(access.elements)) == stride;
  };
  for (int axis = 0; axis < operand.strides.rank(); ++axis)
    if (is_stepped(access, axis) && !(operand.type.shape[axis] == Size(1)) &&
        !is_whole(operand.strides[axis]))
      return false;
  return true;
}

bool strides_allow(const VectorAccess& access, const TensorView& view) {
  for (int axis = 0; axis < view.dims.rank(); ++axis)
    if (is_stepped(access, axis) && view.dims[axis] > 1 &&
        view.strides[axis] % access.elements != 0)
      return false;
  return access.is_linear || access.elements == 1 || view.strides[access.axis] == 1;
}

bool is_aligned(const VectorAccess& access, const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % access.bytes == 0;
}

}  // namespace anneal::cuda
