// Stream: a queue of runs in order, for ExecutionContext::enqueue().
#pragma once
#include <memory>
#include <string>
#include <utility>

namespace anneal {

struct StreamQueue;

// Runs on one stream happen one after another, in the order in which they were enqueued; runs on
// different streams overlap. Copies of a Stream are the same stream. Thread-safe. The last copy
// waits for the work that is left.
class Stream {
 public:
  // "cpu": a queue with a thread of its own, for engines of every device. The thread is the caller
  // of each run, which takes the threads of its context beside it. "cuda", "cuda:1", "emulated": a
  // stream of that GPU, for engines that run on it. Fails with kInvalidArgument on another name,
  // and with kDevice where there is no such device.
  static Stream make(const std::string& device = "cpu");
  // A CUstream of the application (a cudaStream_t is one), for engines that run on its GPU. Runs
  // keep their order with other work on it. It must outlive the last copy, and must not be
  // capturing. Null: the legacy default stream. Never run on a real GPU yet.
  static Stream from_cuda(void* custream);

  // Returns when all runs that were enqueued have ended. Their errors are thrown by
  // ExecutionContext::wait() alone.
  void wait() const;

 private:
  friend class ExecutionContext;
  explicit Stream(std::shared_ptr<StreamQueue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<StreamQueue> queue_;
};

}  // namespace anneal
