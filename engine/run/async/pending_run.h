// PendingRun: a run that was enqueued, for the context that waits for it and the thread that ends
// it.
#pragma once
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

// The context has a share until wait(), its work until it has ended.
class PendingRun {
 public:
  explicit PendingRun(std::function<void()> inputs_read) : inputs_read_(std::move(inputs_read)) {}

  // Done by one thread at a time. The context may go as soon as end() is called.
  void begin() { worker_ = std::this_thread::get_id(); }
  void tell_inputs_read() {
    if (const auto call = std::exchange(inputs_read_, nullptr)) call();
  }
  void end(std::exception_ptr error) {
    tell_inputs_read();
    worker_ = std::thread::id();
    if (error)
      promise_.set_exception(std::move(error));
    else
      promise_.set_value();
  }

  // Of the context's thread.
  bool is_of_this_thread() const { return worker_ == std::this_thread::get_id(); }
  bool is_done() const {
    return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // In a child of the process that enqueued it, the run is never done, and nothing waits for it.
  void wait() const {
    if (process_ == getpid()) ended_.wait();
  }
  void get() {  // throws the run's error
    if (process_ != getpid())
      fail(ErrorCode::kInvalidArgument,
           "the run is in the process that this one was forked from: make a context in this one");
    ended_.get();
  }

 private:
  std::function<void()> inputs_read_;
  const pid_t process_ = getpid();
  std::atomic<std::thread::id> worker_ = std::thread::id();  // while it works
  std::promise<void> promise_;
  std::future<void> ended_ = promise_.get_future();
};

}  // namespace anneal
