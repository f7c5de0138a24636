// A tensor in one line: its range and its first elements.
#pragma once
#include <string>

#include "anneal/core/tensor.h"
#include "anneal/engine/data/elements.h"  // IWYU pragma: export

namespace anneal {

struct TensorSummary {
  double min = 0, max = 0, mean = 0;  // of the elements that are not NaN
  int64_t nan_count = 0, inf_count = 0;
};
TensorSummary summarize(const Tensor& tensor);
// "min -1.2  max 3.4  mean 0.56  [0.1, 0.2, ...]", with "2 NaN" or "1 Inf" where there are any.
std::string summary_text(const Tensor& tensor, int64_t first_values = 5);

}  // namespace anneal
