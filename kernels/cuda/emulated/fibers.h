// Stacks to switch between: how the emulated device runs the threads of a block on one thread of
// the host.
#pragma once
#include <cstddef>
#include <deque>

namespace anneal::cuda {

struct Fiber {
  void* stack_pointer = nullptr;  // where it goes on, while it does not run
  // kStackBytes (device/emulator.h), aligned to them. The first page is free for whoever uses the
  // fiber, and the page behind it stops a stack that grows too far. Null: a thread of the host.
  std::byte* stack = nullptr;
  const void* host_stack = nullptr;  // of a thread of the host, for sanitizers
  size_t host_stack_bytes = 0;
  void* sanitizer_state = nullptr;
};

// Goes on in `to` until something switches to `from` again. A fiber that `ends` is not switched to
// before it is prepared again.
void switch_fiber(Fiber& from, Fiber& to, bool ends = false);

// The first thing that a fiber calls.
void fiber_started();

// One thread at a time. Fibers live as long as this.
class Fibers {
 public:
  Fibers() = default;
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  Fiber& host();  // the thread that calls
  size_t size() const { return fibers_.size(); }
  Fiber& operator[](size_t i) { return fibers_[i]; }
  // One more. Fails with kDevice if there is no memory for it.
  Fiber& add();
  // Resets the fiber; switching to it will call `run`, which must not return.
  static void prepare(Fiber& fiber, void (*run)());

 private:
  Fiber host_;
  std::deque<Fiber> fibers_;
};

}  // namespace anneal::cuda
