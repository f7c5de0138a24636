// Memory of GPUs for applications, and copies from and to it.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/strided_copy.h"
#include "anneal/engine/run/stream.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

// Memory keeps its device, whose context copies then find open: to open the first one takes long.
struct DeviceMemory {
  std::unique_ptr<Device> device;
  std::unique_ptr<Buffer> buffer;  // is destroyed before the device
};

bool is_on_gpu(const ConstTensorView& view) { return view.place.kind == MemoryKind::kCuda; }

void check_tensor(const ConstTensorView& view, std::string_view what) {
  const auto refuse = [&](ErrorCode code, std::string_view why) {
    fail(code, fmt::format("the tensor to copy {} {}", what, why));
  };
  if (std::ranges::find(all_dtypes(), view.dtype) == all_dtypes().end() ||
      view.dtype == DataType::kString)
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("has dtype {}, which has no elements", static_cast<int>(view.dtype)));
  if (view.strides.rank() != view.dims.rank())
    refuse(ErrorCode::kInvalidArgument, "has more or fewer strides than axes");
  if (!view.data && count(view.dims) != 0) refuse(ErrorCode::kInvalidArgument, "has no memory");
  if (is_on_gpu(view) && !is_row_major(view))
    refuse(ErrorCode::kUnsupported,
           fmt::format("has shape {} and strides {} in the memory of a GPU: make it dense and "
                       "row-major",
                       to_string(view.dims), to_string(view.strides)));
}

void copy_dense(const TensorView& to, const ConstTensorView& from, int gpu) {
  const auto bytes = static_cast<size_t>(count(to.dims)) * size_of(to.dtype);
  const auto device = cuda_backend().open(gpu < 0 ? "emulated" : fmt::format("cuda:{}", gpu));
  const auto stream = device->make_stream();
  stream->begin_after(nullptr);
  device->copy(to.data, from.data, bytes, *stream);
  stream->wait();
}

}  // namespace

std::shared_ptr<std::byte> allocate_memory(MemoryKind kind, size_t bytes, const std::string& gpu) {
  return at_entry([&]() -> std::shared_ptr<std::byte> {
    if (kind != MemoryKind::kCuda && kind != MemoryKind::kPinnedHost)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("memory of kind {} cannot be allocated here: use kCuda, or kPinnedHost",
                       static_cast<int>(kind)));
    const auto refuse = [&] {
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" is no GPU: use cuda, cuda:1 or emulated", gpu));
    };
    if (!is_cuda_target(gpu)) refuse();
    auto made = std::make_shared<DeviceMemory>();
    made->device = cuda_backend().open(gpu);
    if (!gpu_number(*made->device)) refuse();
    made->buffer = kind == MemoryKind::kCuda ? made->device->allocate(bytes)
                                             : made->device->allocate_staging(bytes);
    std::byte* const data = made->buffer->data();
    return {std::move(made), data};
  });
}

void copy_tensor(const TensorView& to, const ConstTensorView& from) {
  at_entry([&] {
    check_tensor(to, "to");
    check_tensor(from, "from");
    if (to.dtype != from.dtype || to.dims != from.dims)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("a tensor of {} {} cannot be copied to one of {} {}", to_string(from.dtype),
                       to_string(from.dims), to_string(to.dtype), to_string(to.dims)));
    if (is_on_gpu(to) && is_on_gpu(from) && to.place.device != from.place.device)
      fail(ErrorCode::kUnsupported,
           fmt::format("the tensors to copy are on GPU {} and GPU {}: copy to the host first",
                       from.place.device, to.place.device));
    for (const int gpu : {to.place.device, from.place.device})
      if (gpu < -1) fail(ErrorCode::kInvalidArgument, fmt::format("there is no GPU {}", gpu));
    if (count(to.dims) == 0) return;
    // An address of a GPU is none of the host.
    if (is_on_gpu(to) == is_on_gpu(from) && views_overlap(to, from))
      fail(ErrorCode::kInvalidArgument, "the tensor to copy from overlaps the one to copy to");
    if (!is_on_gpu(to) && !is_on_gpu(from)) return strided_copy(to, from);
    const ConstTensorView host = is_on_gpu(to) ? from : to;
    const int gpu = is_on_gpu(to) ? to.place.device : from.place.device;
    if (is_row_major(host)) return copy_dense(to, from, gpu);
    std::vector<std::byte> dense(static_cast<size_t>(count(to.dims)) * size_of(to.dtype));
    const TensorView between = row_major_view(to.dtype, to.dims, dense.data());
    if (is_on_gpu(to)) {
      strided_copy(between, from);
      copy_dense(to, between, gpu);
    } else {
      copy_dense(between, from, gpu);
      strided_copy(to, between);
    }
  });
}

}  // namespace anneal
