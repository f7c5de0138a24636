// Calls from Python into the libraries: at the end of the interpreter, and after a fork.
#pragma once
#include <nanobind/nanobind.h>

#include <functional>

namespace anneal::python {

// A call of a thread of Python, for nb::call_guard. The interpreter's exit waits for the calls that
// have begun: a thread that asked for the GIL later would be ended in the middle of C++, which
// aborts the process. A call that another thread begins after that never returns, as threads of
// Python that ask for the GIL do.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

// A call back into Python, on any thread: calls within it are part of the call around it.
class CallBack {
 public:
  CallBack();
  ~CallBack();
  CallBack(const CallBack&) = delete;
  CallBack& operator=(const CallBack&) = delete;
};

// Work that goes on after its call and may call back. The exit waits for it, too; a forked child
// does not, since it has not the thread that does the work. Callers have the GIL. is_done is called
// when no other thread is in a call.
class LateWork {
 public:
  explicit LateWork(std::function<bool()> is_done);
  ~LateWork();
  LateWork(const LateWork&) = delete;
  LateWork& operator=(const LateWork&) = delete;
  bool is_done() const { return is_done_(); }

 private:
  std::function<bool()> is_done_;
};

// Whether the interpreter ends: what takes long is cancelled.
bool is_ending();

// Waits for the calls of other threads and for late work; `atexit` calls it. Ctrl-C ends the
// waiting. Raises ImportError in a subinterpreter, and where the process has the module already.
void bind_exit(nanobind::module_& module);

// The process that made an object.
class Maker {
 public:
  Maker();
  bool is_this_process() const;

 private:
  unsigned forks_;
};

}  // namespace anneal::python
