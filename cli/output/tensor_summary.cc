#include "anneal/cli/output/tensor_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/cli/output/print.h"

namespace anneal {

TensorSummary summarize(const Tensor& tensor) {
  TensorSummary summary;
  int64_t numbers = 0;
  double sum = 0;
  for_each_element(tensor.view(), [&](const std::byte* at) {
    const double value = read_element(tensor.dtype(), at);
    if (std::isnan(value)) {
      ++summary.nan_count;
      return;
    }
    summary.inf_count += std::isinf(value) ? 1 : 0;
    summary.min = numbers == 0 ? value : std::min(summary.min, value);
    summary.max = numbers == 0 ? value : std::max(summary.max, value);
    sum += value;
    ++numbers;
  });
  if (numbers > 0) summary.mean = sum / static_cast<double>(numbers);
  return summary;
}

std::string summary_text(const Tensor& tensor, int64_t first_values) {
  if (tensor.count() == 0) return "no elements";
  const TensorSummary summary = summarize(tensor);
  std::string text;
  if (summary.nan_count < tensor.count())
    text = fmt::format("min {}  max {}  mean {}", number_text(summary.min),
                       number_text(summary.max), number_text(summary.mean));
  if (summary.nan_count > 0)
    text += fmt::format("{}{} NaN", text.empty() ? "" : "  ", summary.nan_count);
  if (summary.inf_count > 0) text += fmt::format("  {} Inf", summary.inf_count);
  text += "  [";
  const int64_t shown = std::min(first_values, tensor.count());
  const size_t element = size_of(tensor.dtype());
  for (int64_t i = 0; i < shown; ++i)
    text +=
        fmt::format("{}{}", i > 0 ? ", " : "",
                    number_text(read_element(
                        tensor.dtype(), tensor.bytes().data() + static_cast<size_t>(i) * element)));
  return text + (shown < tensor.count() ? ", ...]" : "]");
}

}  // namespace anneal
