#include "anneal/python/src/calls.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace nb = nanobind;

namespace anneal::python {
namespace {

// State of the process: the calls of all threads.
struct Calls {
  std::mutex mutex;
  std::condition_variable ended;
  std::set<const LateWork*> late;  // guarded by the GIL
  int running = 0;                 // guarded by the mutex
  bool is_bound = false;           // guarded by the GIL
  std::atomic<bool> is_ending = false;
  std::thread::id ending_thread;    // written before is_ending
  std::atomic<unsigned> forks = 0;  // of which this process is a child, counted from the import on
};

// Never destroyed: threads may be in calls when the process exits.
Calls& calls() {
  static Calls& it = *new Calls;
  return it;
}

thread_local int depth = 0;  // of calls and callbacks of this thread

[[noreturn]] void sleep_for_ever() {
  PyEval_SaveThread();
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

void wait_for_calls() {
  Calls& all = calls();
  all.ending_thread = std::this_thread::get_id();
  all.is_ending = true;
  for (;;) {
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(all.mutex);
      if (all.ended.wait_for(lock, std::chrono::milliseconds(100),
                             [&] { return all.running == 0; }))
        break;
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  }
  while (std::ranges::any_of(all.late, [](const LateWork* work) { return !work->is_done(); })) {
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    const nb::gil_scoped_release release;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Call::Call() {
  Calls& all = calls();
  if (depth == 0) {
    if (all.is_ending && all.ending_thread != std::this_thread::get_id()) sleep_for_ever();
    const std::lock_guard lock(all.mutex);
    ++all.running;
  }
  ++depth;
}

Call::~Call() {
  if (--depth > 0) return;
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  if (--all.running == 0) all.ended.notify_all();
}

CallBack::CallBack() { ++depth; }
CallBack::~CallBack() { --depth; }

LateWork::LateWork(std::function<bool()> is_done) : is_done_(std::move(is_done)) {
  calls().late.insert(this);
}
LateWork::~LateWork() { calls().late.erase(this); }

bool is_ending() { return calls().is_ending; }

void bind_exit(nb::module_& module) {
  // Callbacks take the GIL of the main interpreter, and classes are registered once.
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
    throw nb::import_error(
        "anneal works in the main interpreter alone, not in a subinterpreter: use a process");
  if (std::exchange(calls().is_bound, true))
    throw nb::import_error(
        "anneal is imported a second time: keep it in sys.modules, or begin a process");
  pthread_atfork(nullptr, nullptr, [] {
    Calls& all = calls();
    ++all.forks;
    // The other threads do not exist here, and one may have held the mutex.
    new (&all.mutex) std::mutex;
    new (&all.ended) std::condition_variable;
    all.running = depth > 0 ? 1 : 0;
    all.late.clear();
  });
  module.def("wait_for_calls", &wait_for_calls);
  nb::module_::import_("atexit").attr("register")(module.attr("wait_for_calls"));
}

Maker::Maker() : forks_(calls().forks) {}
bool Maker::is_this_process() const { return forks_ == calls().forks; }

}  // namespace anneal::python
