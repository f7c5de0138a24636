// Progress of a long command on stderr: one changing line on a terminal, lines with --verbose, else
// no output.
#pragma once
#include <chrono>
#include <string_view>

namespace anneal {

class Progress {
 public:
  explicit Progress(bool verbose);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void say(std::string_view what);
  void clear();  // before printing anything else

 private:
  bool verbose_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace anneal
