// Stream: a queue of runs in order, for ExecutionContext::enqueue().
#pragma once
#include <memory>
#include <string>
#include <utility>

namespace anneal {

struct StreamQueue;

// Runs on one stream happen one after another, in the order in which they were enqueued; runs on
// different streams overlap. Copies of a Stream are the same stream. Thread-safe. The destructor
// of the last copy waits for its runs.
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

}  // namespace anneal
