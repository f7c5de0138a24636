#include "anneal/engine/tune/metric/judged_output.h"

#include <fmt/format.h>

#include "anneal/core/fail.h"

namespace anneal {

size_t find_output(const Answer& answer, const std::string& named,
                   const std::function<bool(const Tensor&)>& fits) {
  size_t i = 0;
  while (i < answer.outputs.size() &&
         ((!named.empty() && answer.names[i] != named) || !fits(answer.outputs[i])))
    ++i;
  return i;
}

void fail_without_output(const Answer& answer, const std::string& named, std::string_view wanted,
                         std::string_view metric) {
  std::string all;
  for (size_t i = 0; i < answer.outputs.size(); ++i)
    all += fmt::format("{}\"{}\" {}{}", i > 0 ? ", " : "", answer.names[i],
                       to_string(answer.outputs[i].dtype()), to_string(answer.outputs[i].dims()));
  fail(ErrorCode::kInvalidArgument,
       fmt::format("{} needs an output {}, and {}; there {} {}: name the output or choose another "
                   "metric",
                   metric, wanted, named.empty() ? "none is" : fmt::format("\"{}\" is none", named),
                   answer.outputs.size() == 1 ? "is" : "are", all.empty() ? "none" : all));
}

}  // namespace anneal
