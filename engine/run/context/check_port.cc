#include "anneal/engine/run/context/check_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"

namespace anneal {

void check_dtype(const TensorInfo& port, const ConstTensorView& memory, std::string_view what) {
  const auto wrong = [&](std::string_view why) {
    fail_port(ErrorCode::kInvalidArgument, port.name,
              fmt::format("{} \"{}\" {}", what, port.name, why), memory.dims);
  };
  const std::span<const DataType> dtypes = all_dtypes();
  if (std::ranges::find(dtypes, memory.dtype) == dtypes.end())
    wrong(fmt::format("has dtype {}, which is no DataType", static_cast<int>(memory.dtype)));
  if (memory.dtype != port.dtype)
    wrong(fmt::format("is {}, the engine expects {}", to_string(memory.dtype),
                      to_string(port.dtype)));
}

void check_memory(const Engine& engine, std::optional<int> gpu, const TensorInfo& port,
                  const ConstTensorView& memory, std::string_view what) {
  const auto wrong = [&](ErrorCode code, std::string_view why) {
    fail_port(code, port.name, fmt::format("{} \"{}\" {}", what, port.name, why), memory.dims);
  };
  check_dtype(port, memory, what);
  if (memory.strides.rank() != memory.dims.rank())
    wrong(ErrorCode::kInvalidArgument, "has more or fewer strides than axes");
  if (!memory.data && count(memory.dims) != 0) wrong(ErrorCode::kInvalidArgument, "has no memory");
  if (memory.place.kind != MemoryKind::kCuda) return;
  if (gpu != memory.place.device)
    wrong(ErrorCode::kUnsupported,
          fmt::format("is in the memory of GPU {}: copy it to {}; the engine is on {}",
                      memory.place.device,
                      gpu && *gpu >= 0 ? fmt::format("GPU {} or the host", *gpu) : "the host",
                      engine.device()));
  if (!is_row_major(memory))
    wrong(ErrorCode::kUnsupported,
          fmt::format("has shape {} and strides {} in the memory of a GPU: make it dense and "
                      "row-major",
                      to_string(memory.dims), to_string(memory.strides)));
}

void check_dims(const TensorInfo& port, const Dims& dims) {
  bool fits = dims.rank() == port.dims.rank();
  for (int axis = 0; fits && axis < port.dims.rank(); ++axis)
    fits = dims[axis] >= port.min_dims[axis] && dims[axis] <= port.max_dims[axis];
  if (!fits) {
    std::string wanted;
    for (const std::string& dim : port.dim_names) wanted += (wanted.empty() ? "" : ",") + dim;
    std::string range;
    if (port.min_dims != port.max_dims)
      range = fmt::format(" (from {} to {})", to_string(port.min_dims), to_string(port.max_dims));
    fail_port(ErrorCode::kInvalidArgument, port.name,
              fmt::format("input \"{}\" has shape {}, the engine expects [{}]{}", port.name,
                          to_string(dims), wanted, range),
              dims);
  }
}

bool is_apart(const ConstTensorView& view) {
  if (is_row_major(view) || count(view.dims) == 0) return true;
  Dims axes;  // by stride, the smallest first
  for (int axis = 0; axis < view.dims.rank(); ++axis)
    if (view.dims[axis] > 1) axes.push_back(axis);
  const auto stride = [&](int64_t axis) { return std::abs(view.strides[static_cast<int>(axis)]); };
  std::ranges::sort(axes, {}, stride);
  int64_t reach = 0;
  for (const int64_t axis : axes) {
    if (stride(axis) <= reach) return false;
    reach += (view.dims[static_cast<int>(axis)] - 1) * stride(axis);
  }
  return true;
}

}  // namespace anneal
