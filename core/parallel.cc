#include "anneal/core/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

// Ranges per thread: enough that a late thread costs a quarter of its share.
constexpr int64_t kRangesPerThread = 4;
constexpr int kSpins = 2000;  // before sleeping: about as long as waking up takes

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The body that a thread is running, for use where no more threads can start.
struct Inside {
  const ThreadTeam* team = nullptr;
  int thread = 0;
};
thread_local Inside inside;

// Runs a body, maybe within another one.
class BodyScope {
 public:
  explicit BodyScope(Inside where) : before_(std::exchange(inside, where)) {}
  ~BodyScope() { inside = before_; }
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

 private:
  const Inside before_;
};

// The ranges of a job that one of its threads begins with: it claims them from the front, and the
// others, once they are through with theirs, from the back. As the threads of a team cut every job
// alike, a thread mostly reads what it wrote in the last one, out of a cache of its own.
class alignas(64) Share {
 public:
  Share* next = nullptr;  // in the ring of a job's shares
  int thread = 0;         // whose it is: 0 is the caller

  void fill(int64_t begin, int64_t end) {
    rest_.store(packed(begin, end), std::memory_order_relaxed);
  }
  void clear() { fill(0, 0); }

  // -1: none is left.
  int64_t claim(bool from_front) {
    uint64_t rest = rest_.load(std::memory_order_relaxed);
    for (;;) {
      const int64_t begin = static_cast<uint32_t>(rest), end = rest >> 32;
      if (begin == end) return -1;
      const uint64_t less = from_front ? packed(begin + 1, end) : packed(begin, end - 1);
      if (rest_.compare_exchange_weak(rest, less, std::memory_order_relaxed))
        return from_front ? begin : end - 1;
    }
  }

 private:
  static uint64_t packed(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(begin);
  }

  std::atomic<uint64_t> rest_{0};
};

class Job {
 public:
  // REQUIRES: 0 < ranges <= items, ranges < 2^31
  Job(const ThreadTeam& team, int64_t items, int64_t ranges,
      FunctionRef<void(int64_t, int64_t)> body)
      : team_(team),
        length_(items / ranges),
        longer_(items % ranges),
        ranges_(ranges),
        body_(body) {}

  // Claims ranges until there are none.
  // REQUIRES: `own` is in a ring of shares that hold all ranges between them
  void work(Share& own) {
    const BodyScope entered({&team_, own.thread});
    try {
      Share* share = &own;
      do {
        for (int64_t range; (range = share->claim(share == &own)) >= 0;)
          body_(begin_of(range), begin_of(range + 1));
        share = share->next;
      } while (share != &own);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      own.clear();
      for (Share* share = own.next; share != &own; share = share->next) share->clear();
    }
  }

  // REQUIRES: all workers have returned
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Ranges one item longer than the others lie among them evenly.
  int64_t begin_of(int64_t range) const { return length_ * range + longer_ * range / ranges_; }

  const ThreadTeam& team_;
  const int64_t length_, longer_, ranges_;
  const FunctionRef<void(int64_t, int64_t)> body_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the thread that set failed_
};

}  // namespace

// A thread with a letter box for one job. Lives as long as the process.
class alignas(64) Worker {
 public:
  Worker* next = nullptr;  // in the one list that holds it: of the idle ones or of a team
  Share share;             // of the job that is posted

  Worker() {
    // Signals are for the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { run(); }).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void post(Job& job) {
    job_ = &job;
    change_to(kPosted);
  }

  // Returns when the worker will not touch the job any more. A worker that is still waking up does
  // not get to see it, so a short job never waits for a sleeper.
  void collect() {
    State posted = kPosted;
    if (state_.compare_exchange_strong(posted, kIdle)) return;
    wait_while(kRunning);
  }

 private:
  enum State : int { kIdle, kPosted, kRunning };

  [[noreturn]] void run() {
    for (;;) {
      wait_while(kIdle);
      State posted = kPosted;
      if (!state_.compare_exchange_strong(posted, kRunning)) continue;
      job_->work(share);
      change_to(kIdle);
    }
  }

  // Sequentially consistent: notify_one() wakes no thread if it sees no waiter, so it must not look
  // before the new state is visible.
  void change_to(State state) {
    state_.store(state, std::memory_order_seq_cst);
    state_.notify_one();
  }

  void wait_while(State state) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (state_.load(std::memory_order_acquire) != state) return;
      pause();
    }
    state_.wait(state, std::memory_order_acquire);
  }

  std::atomic<State> state_{kIdle};
  Job* job_ = nullptr;  // written while idle, read while running
};

namespace {

// The workers of the process. Never destroyed: threads may be running when the process exits.
class Pool {
 public:
  // A list of as many as there are, up to `wanted`, and its length.
  std::pair<Worker*, int> lease(int wanted) {
    Worker* leased = nullptr;
    int count = 0;
    const std::lock_guard lock(mutex_);
    for (; count < wanted && leased_ < budget_; ++count, ++leased_) {
      Worker* worker = idle_ ? std::exchange(idle_, idle_->next) : start_one();
      if (!worker) break;
      worker->next = std::exchange(leased, worker);
    }
    return {leased, count};
  }

  void give_back(Worker* workers) {
    const std::lock_guard lock(mutex_);
    while (workers) {
      Worker* worker = std::exchange(workers, workers->next);
      worker->next = std::exchange(idle_, worker);
      --leased_;
    }
  }

  void set_budget(int workers) {
    const std::lock_guard lock(mutex_);
    budget_ = workers;
  }

  int budget() {
    const std::lock_guard lock(mutex_);
    return budget_;
  }

 private:
  // Null when the system has no thread or no memory to give.
  static Worker* start_one() {
    try {
      return std::make_unique<Worker>().release();
    } catch (const std::system_error&) {
      return nullptr;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  std::mutex mutex_;
  Worker* idle_ = nullptr;
  int budget_ = hardware_threads() - 1;
  int leased_ = 0;
};

Pool& pool() {
  static Pool& it = *new Pool;
  return it;
}

}  // namespace

void set_worker_budget(int workers) {
  check(workers >= 0, "a budget is not negative");
  pool().set_budget(workers);
}

int largest_team() { return pool().budget() + 1; }

ThreadTeam::ThreadTeam(int threads) {
  if (threads > 1 && !inside.team) std::tie(workers_, helpers_) = pool().lease(threads - 1);
}

ThreadTeam::~ThreadTeam() {
  if (workers_) pool().give_back(workers_);
}

int ThreadTeam::size() const { return helpers_ + 1; }

int ThreadTeam::thread() const { return inside.team == this ? inside.thread : 0; }

void ThreadTeam::for_ranges(int64_t items, int64_t grain,
                            FunctionRef<void(int64_t begin, int64_t end)> body) {
  check(grain > 0, "a grain is at least 1");
  if (items <= 0) return;
  if (!workers_ || inside.team || items / 2 < grain) {
    const BodyScope entered({this, thread()});
    return body(0, items);
  }
  int64_t ranges = std::min<int64_t>(size() * kRangesPerThread, items / grain);
  const int64_t threads = std::min<int64_t>(ranges, size());
  // Three long ranges for two threads would give one thread twice the work of the other.
  if (grain > 1) ranges -= ranges % threads;
  const auto first_of = [&](int64_t thread) { return ranges * thread / threads; };
  Job job(*this, items, ranges, body);
  Share own;
  own.fill(0, first_of(1));
  Share* last = &own;
  Worker* end = workers_;
  for (int thread = 1; thread < threads; ++thread, end = end->next) {
    end->share.fill(first_of(thread), first_of(thread + 1));
    end->share.thread = thread;
    last = last->next = &end->share;
  }
  last->next = &own;
  for (Worker* worker = workers_; worker != end; worker = worker->next) worker->post(job);
  job.work(own);
  for (Worker* worker = workers_; worker != end; worker = worker->next) worker->collect();
  job.rethrow();
}

}  // namespace anneal
