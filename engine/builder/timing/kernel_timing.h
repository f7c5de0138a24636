// How kernels are chosen by their times.
#pragma once
#include <string>

namespace anneal {

struct KernelTiming {
  bool measure = false;    // the times that the cache does not have
  std::string cache = {};  // the file; empty: none
  int threads = 0;         // that the engine will run with; 0: one per core
  int level = 3;           // BuildOptions::optimization_level; 0: neither measured nor known times
  double seconds = 0;      // no layer's timing begins after this time; 0: no limit

  bool chooses() const { return level > 0 && (measure || !cache.empty()); }
};

}  // namespace anneal
