// Stream: a queue of runs in order, for ExecutionContext::enqueue(). Memory of GPUs.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "anneal/core/tensor_view.h"

namespace anneal {

struct StreamQueue;

// Runs on one stream happen in the order of enqueue(); runs on different streams overlap. Copies
// are the same stream; the destructor of the last one waits for its runs. Thread-safe.
class Stream {
 public:
  // "cpu": a queue with its own thread, for engines on any device. That thread calls each run,
  // which also uses the threads of its context. "cuda", "cuda:1", "emulated": a stream of that
  // GPU, for engines that run on it. Other names: kInvalidArgument; no such GPU: kDevice.
  static Stream make(const std::string& device = "cpu");
  // A CUstream of the application (a cudaStream_t is one), for engines that run on its GPU. Runs
  // keep their order with other work on it. It must outlive the last copy, and must not be
  // capturing. Null: the legacy default stream.
  static Stream from_cuda(void* custream);

  // Waits for all enqueued runs. ExecutionContext::wait() throws their errors; this does not.
  void wait() const;

 private:
  friend class ExecutionContext;
  explicit Stream(std::shared_ptr<StreamQueue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<StreamQueue> queue_;
};

// Memory of a GPU ("cuda", "cuda:1", "emulated"), or kPinnedHost: of the host, page-locked for its
// copies. Not initialised, aligned to 64 bytes. The last copy of the pointer frees it. Fails with
// kInvalidArgument on kHost and other devices, kDevice, kOutOfMemory. Thread-safe.
std::shared_ptr<std::byte> allocate_memory(MemoryKind kind, size_t bytes, const std::string& gpu);
// Copies all elements, and waits. Memory of a GPU, dense and row-major, is copied after the work on
// its default stream, not after that of other streams. Fails with kInvalidArgument if types or dims
// differ or the two overlap, with kUnsupported on other strides and two GPUs. Thread-safe.
void copy_tensor(const TensorView& to, const ConstTensorView& from);

}  // namespace anneal
