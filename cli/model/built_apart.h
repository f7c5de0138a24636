// A model built by a process of its own, so that the build neither adds to the measured memory nor
// warms caches.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "anneal/cli/model/open_or_build.h"

namespace anneal {

class BuiltApart {
 public:
  // Fails as building does. REQUIRES: this process has one thread.
  explicit BuiltApart(const EngineSource& source);
  // Of the engine file that `build` returns.
  explicit BuiltApart(const std::function<std::vector<std::byte>()>& build);
  ~BuiltApart();
  BuiltApart(const BuiltApart&) = delete;
  BuiltApart& operator=(const BuiltApart&) = delete;

  std::string engine_path() const;  // of a file without a name, which goes with this
  double milliseconds() const { return milliseconds_; }

 private:
  int fd_ = -1;
  double milliseconds_ = 0;
};

}  // namespace anneal
