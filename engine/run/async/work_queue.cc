#include "anneal/engine/run/async/work_queue.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

// Shared with the thread, which may outlive the queue if one of its own tasks destroys that.
struct WorkQueue::Shared {
  std::mutex mutex;  // of everything below
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  uint64_t put = 0, ended = 0;  // tasks
  bool is_closed = false;
  std::thread thread;
  std::atomic<pid_t> process = 0;  // that started the thread; written before it

  // Whether the thread is in a process that this one was forked from. Its mutex may be locked.
  bool is_of_parent() const { return process != 0 && process != getpid(); }
  void require_thread() const {
    if (is_of_parent())
      fail(ErrorCode::kInvalidArgument,
           "the stream's thread is in the process that this one was forked from: make a stream in "
           "this process");
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return is_closed || !tasks.empty(); });
      if (tasks.empty()) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // frees what it captured before wait() returns
      lock.lock();
      ++ended;
      changed.notify_all();
    }
  }
};

namespace {

// Signals are for the threads of the program.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

WorkQueue::WorkQueue() : shared_(std::make_shared<Shared>()) {}

WorkQueue::~WorkQueue() {
  if (shared_->is_of_parent()) {
    new std::shared_ptr<Shared>(shared_);  // never destroyed: its thread cannot be joined
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_closed = true;
  }
  shared_->changed.notify_all();
  if (!shared_->thread.joinable()) return;
  if (is_own_thread())
    shared_->thread.detach();
  else
    shared_->thread.join();
}

void WorkQueue::put(std::function<void()> task) {
  shared_->require_thread();
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->thread.joinable()) {
    const BlockedSignals blocked;
    try {
      shared_->process = getpid();
      shared_->thread = std::thread([shared = shared_] { shared->run(); });
    } catch (const std::system_error& error) {
      fail(ErrorCode::kDevice,
           std::string("the system cannot start a thread for a stream: ") + error.what());
    }
  }
  shared_->tasks.push_back(std::move(task));
  ++shared_->put;
  shared_->changed.notify_all();
}

void WorkQueue::wait() {
  shared_->require_thread();
  std::unique_lock lock(shared_->mutex);
  if (shared_->thread.get_id() == std::this_thread::get_id())
    fail(ErrorCode::kInvalidArgument, "a run must not wait for its own stream");
  const uint64_t last = shared_->put;
  shared_->changed.wait(lock, [&] { return shared_->ended >= last; });
}

bool WorkQueue::is_own_thread() const {
  if (shared_->is_of_parent()) return false;
  const std::lock_guard lock(shared_->mutex);
  return shared_->thread.get_id() == std::this_thread::get_id();
}

}  // namespace anneal
