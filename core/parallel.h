// How work runs on several threads. (A Stream has a thread of its own to start runs:
// engine/run/async/.) A ThreadTeam is a lease of workers from the process-wide
// budget (one worker per core beyond the first, by default); when the budget is spent a team is
// smaller, at worst its caller alone. Each thread of a team has a share of the work. The share is
// the same every time, so the data that the thread wrote last is in its own cache. Shares are
// claimed in chunks. Threads that have finished claim chunks of other shares, so a slow core does
// not delay the others.
#pragma once
#include <cstdint>

namespace anneal {

// A reference to a callable; no ownership, no allocation. The callable must outlive the call.
template <class Signature>
class FunctionRef;
template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
  FunctionRef(const F& f)  // NOLINT(google-explicit-constructor)
      : object_(&f), call_([](const void* object, A... args) -> R {
          return (*static_cast<const F*>(object))(args...);
        }) {}
  R operator()(A... args) const { return call_(object_, args...); }

 private:
  const void* object_;
  R (*call_)(const void*, A...);
};

// Cores this process may use, at least 1: its affinity mask and its cgroup's CPU quota, asked once.
int hardware_threads();

// How many workers the teams made from now on may hold together; hardware_threads() - 1 until then.
// Workers are threads that live as long as the process; they are started when first wanted.
// REQUIRES: workers >= 0
void set_worker_budget(int workers);
int largest_team();  // the budget and the caller: no team has more threads

class Worker;  // a thread of the process, parallel.cc's own

// One caller at a time. The destructor gives the workers back. Nothing here allocates, but the
// first start of a worker.
class ThreadTeam {
 public:
  // threads: wanted, the caller included; size() says what it got. Alone inside a body.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  int size() const;
  // In a body of this team, and of no other one within it: which of the threads runs it, the caller
  // being 0. In [0, min(size(), items)). Bodies that run at one time have different ones, so that
  // each can have memory of its own.
  int thread() const;
  // Calls body(begin, end) for disjoint ranges that cover [0, items), nearly equal, each at least
  // `grain` long if items are. The first exception thrown by a body is rethrown here once all have
  // returned. Results must not depend on how the ranges are cut: every kernel gives the same bits
  // for any team. Called from inside a body it runs there and then, on that thread alone.
  void for_ranges(int64_t items, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  Worker* workers_ = nullptr;  // a list, chained in the workers themselves
  int helpers_ = 0;            // its length
};

}  // namespace anneal
