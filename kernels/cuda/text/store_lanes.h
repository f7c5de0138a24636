// StoreLanes: the accumulators that a thread stores at once.
#pragma once
#include <cstdint>
#include <vector>

namespace anneal::cuda {

// Which accumulators a thread holds, in coordinates of an op output.
struct StoreLanes {
  int axis = 0;          // they are neighbours along this one
  int64_t most = 8;      // a power of two
  int64_t multiple = 1;  // where it begins is a multiple of each power of two that divides this
  // Axes that a kernel counts as one number, `row`, outermost first. Other axes are the same for a
  // whole block.
  std::vector<int> rows = {};
};

}  // namespace anneal::cuda
