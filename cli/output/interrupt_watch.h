// Handling of Ctrl-C and similar signals while temporary files exist.
#pragma once
#include <csignal>

namespace anneal {

// While it lives, SIGINT, SIGTERM and SIGHUP wait to be asked for. One that was found ends the
// process when this is destroyed, after everything that was made later.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  int fd() const { return fd_; }  // readable when a signal waits
  void check();                   // fails if a signal waits, so that the stack unwinds
  bool take();                    // whether a signal waited; it then does not end the process
  void release() const;           // signals act again: for a child process

 private:
  int next() const;  // the number of a signal that waits, or 0

  int fd_ = -1;
  int found_ = 0;
  sigset_t before_{};
};

}  // namespace anneal
