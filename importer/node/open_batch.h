// The batch of a model that has a number in its place, which an import opens.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "anneal/core/size/size.h"

namespace anneal {

// The imported graph gives the model's results where `rows` is the model's number. Whether each row
// is what the model gives for it alone is for the caller to prove.
struct OpenBatch {
  Size rows;                             // a symbol, 1 or more: axis 0 of the inputs
  int64_t in_model = 0;                  // the number in its place
  Bounds bounds = {};                    // the rows that were asked for; those of `rows` are wider
  std::vector<std::string> inputs = {};  // that have it
};

}  // namespace anneal
