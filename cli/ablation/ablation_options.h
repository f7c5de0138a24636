// The options of `anneal bench --ablation`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "anneal/cli/measure/measure.h"
#include "anneal/cli/model/open_or_build.h"

namespace anneal {

struct AblationOptions {
  EngineSource source;  // its build has the flags of the last row
  std::vector<std::string> inputs;
  MeasureOptions measured;  // of each row; with one context
  std::string flags;        // of the command line that anneal build takes, each after a blank
  std::string json, picture;
  bool verbose = false;
  std::function<void()> on_built = [] {};  // from then on there may be threads
};

}  // namespace anneal
