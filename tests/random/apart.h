// Work in a process of its own, which may crash or hang.
#pragma once
#include <functional>
#include <string>

namespace anneal::random_graphs {

struct Ended {
  bool whole = false;     // it came to its end
  std::string text = {};  // what it returned, else what ended it
};

// REQUIRES: this process has used neither NVRTC nor a GPU.
Ended run_apart(const std::function<std::string()>& work, int seconds);

}  // namespace anneal::random_graphs
