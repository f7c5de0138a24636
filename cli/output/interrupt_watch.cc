#include "anneal/cli/output/interrupt_watch.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "anneal/cli/output/errors.h"

namespace anneal {

InterruptWatch::InterruptWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched, signal);
  fd_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0)
    fail(ErrorCode::kDevice, fmt::format("cannot watch for signals: {}", std::strerror(errno)));
  sigprocmask(SIG_BLOCK, &watched, &before_);
}

InterruptWatch::~InterruptWatch() {
  close(fd_);
  release();
  if (found_ != 0) raise(found_);
}

void InterruptWatch::check() {
  if (const int signal = next(); signal != 0) {
    found_ = signal;
    fail(ErrorCode::kInvalidArgument, "interrupted");
  }
}

bool InterruptWatch::take() { return next() != 0; }

int InterruptWatch::next() const {
  signalfd_siginfo signal{};
  if (read(fd_, &signal, sizeof(signal)) != sizeof(signal)) return 0;
  return static_cast<int>(signal.ssi_signo);
}

void InterruptWatch::release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace anneal
