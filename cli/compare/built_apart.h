// A model built by a process of its own, so that what building takes of memory and warms of caches
// is no part of what is measured afterwards.
#pragma once
#include <string>

#include "anneal/cli/compare/engine_source.h"

namespace anneal {

class BuiltApart {
 public:
  // Fails as building does. REQUIRES: this process has one thread.
  explicit BuiltApart(const EngineSource& source);
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
