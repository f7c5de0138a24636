// Progress of a long command on stderr: one changing line on a terminal, lines with --verbose, else
// no output.
#pragma once
#include <chrono>
#include <string_view>

#include "anneal/engine/builder/build_options.h"

namespace anneal {

class ProgressLine {
 public:
  explicit ProgressLine(bool verbose);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void say(std::string_view what);
  void clear();  // before printing anything else

 private:
  bool verbose_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_;
};

// Shows what a call does. The line outlives the callback.
ProgressCallback shown_by(ProgressLine& line);

}  // namespace anneal
