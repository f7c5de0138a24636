// A model built by a process of its own, so that the build neither adds to the measured memory nor
// warms caches.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anneal/cli/model/open_or_build.h"
#include "anneal/engine/run/engine.h"

namespace anneal {

class BuiltApart {
 public:
  // Fails as building does. REQUIRES: this process has one thread.
  explicit BuiltApart(const EngineSource& source);
  // Of the engine file that `build` returns. REQUIRES: the same
  explicit BuiltApart(const std::function<std::vector<std::byte>()>& build);
  ~BuiltApart();
  BuiltApart(const BuiltApart&) = delete;
  BuiltApart& operator=(const BuiltApart&) = delete;

  // Opens it as open_engine() does; errors name the model in place of the file without a name.
  std::shared_ptr<const Engine> open(const std::string& model, const EngineOptions& options) const;
  double milliseconds() const { return milliseconds_; }

 private:
  int fd_ = -1;
  double milliseconds_ = 0;
};

}  // namespace anneal
