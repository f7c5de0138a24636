#include "anneal/engine/run/stream.h"

#include <fmt/format.h>

#include "anneal/core/fail.h"
#include "anneal/engine/run/async/stream_queue.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {

Stream Stream::make(const std::string& device) {
  return at_entry([&] {
    auto queue = std::make_shared<StreamQueue>();
    queue->name = "a stream of " + device;
    if (is_cuda_target(device)) {
      queue->device = cuda_backend().open(device);
      queue->on_device = queue->device->make_stream();
      queue->native = queue->on_device->native();
      queue->is_of_gpu = true;
    } else {
      if (!device.starts_with("cpu"))
        fail(ErrorCode::kInvalidArgument,
             fmt::format("\"{}\" is no device of a stream: use cpu, cuda, cuda:1 or emulated",
                         device));
      cpu_backend().open(device);  // checks the name
    }
    return Stream(std::move(queue));
  });
}

Stream Stream::from_cuda(void* custream) {
  return at_entry([&] {
    auto queue = std::make_shared<StreamQueue>();
    queue->name = "a CUstream";
    queue->native = custream;
    queue->is_of_gpu = true;
    return Stream(std::move(queue));
  });
}

void Stream::wait() const {
  at_entry([&] {
    if (queue_) queue_->work.wait();
  });
}

}  // namespace anneal
