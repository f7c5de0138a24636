#include "anneal/core/tensor_view.h"

#include <algorithm>
#include <string>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

bool same_layout(const ConstTensorView& view, const Dims& strides) {
  if (view.strides.rank() != view.dims.rank()) return false;
  for (int axis = 0; axis < view.dims.rank(); ++axis)
    if (view.dims[axis] > 1 && view.strides[axis] != strides[axis]) return false;
  return true;
}

bool is_empty(const Dims& dims) { return std::find(dims.begin(), dims.end(), 0) != dims.end(); }

}  // namespace

bool is_row_major(const ConstTensorView& view) {
  return is_empty(view.dims) || same_layout(view, row_major_strides(view.dims));
}

namespace detail {

void check_span(DataType wanted, DataType dtype, const Dims& dims, const Dims& strides,
                MemoryPlace place) {
  at_entry([&] {
    const auto wrong = [](const std::string& why) { fail(ErrorCode::kInvalidArgument, why); };
    if (dtype != wanted)
      wrong("the tensor holds " + std::string(to_string(dtype)) + ", its elements are read as " +
            std::string(to_string(wanted)));
    if (place.kind == MemoryKind::kCuda)
      wrong("the tensor lies in the memory of a GPU: copy it to the host first");
    if (!is_row_major({dtype, dims, strides, nullptr}))
      wrong("the tensor of shape " + to_string(dims) + " has strides " + to_string(strides) +
            ": it is not dense and row-major");
  });
}

void check_elements(DataType dtype, const Dims& dims, size_t elements, size_t bytes) {
  at_entry([&] {
    if (dtype == DataType::kString)
      fail(ErrorCode::kInvalidArgument, "a view or tensor cannot hold strings");
    if (const auto wanted = static_cast<size_t>(count(dims)); elements != wanted)
      fail(ErrorCode::kInvalidArgument,
           "a view of shape " + to_string(dims) + " has " + std::to_string(wanted) +
               " elements, the memory holds " + std::to_string(elements));
    if (size_of(dtype) != bytes)
      fail(ErrorCode::kInvalidArgument, std::string(to_string(dtype)) + " has elements of " +
                                            std::to_string(size_of(dtype)) +
                                            " bytes, the memory of " + std::to_string(bytes));
  });
}

}  // namespace detail
}  // namespace anneal
