#include "anneal/cli/output/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "anneal/cli/output/printable.h"

namespace anneal {

ProgressLine::ProgressLine(bool verbose)
    : verbose_(verbose),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::say(std::string_view what) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (verbose_) {
    fmt::print(stderr, "anneal: {:.2f} s: {}\n", seconds, printable(what));
  } else if (terminal_) {
    std::fflush(stdout);
    fmt::print(stderr, "\r\033[K{:.70}", printable(what));
    std::fflush(stderr);
    shown_ = true;
  }
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

ProgressCallback shown_by(ProgressLine& line) {
  return [&line](const Progress& at) {
    line.say(at.what);
    return true;
  };
}

}  // namespace anneal
