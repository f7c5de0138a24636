// WorkQueue: tasks that a thread of its own runs one after another.
#pragma once
#include <functional>
#include <memory>

namespace anneal {

// Thread-safe. After a fork, calls in the child fail with kInvalidArgument if the parent had
// started the thread, and the destructor does nothing. The thread starts with the first task. It is
// no worker of parallel.h: a task may make a ThreadTeam of workers, as any thread of the
// application may.
class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue();  // as wait(), unless a task of this queue calls it
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // REQUIRES: the task does not throw. Fails with kDevice if the system starts no thread.
  void put(std::function<void()> task);
  // Until every task that was put before has ended. Fails with kInvalidArgument in a task of this
  // queue, which would wait for itself.
  void wait();
  bool is_own_thread() const;  // whether a task of this queue is calling

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace anneal
