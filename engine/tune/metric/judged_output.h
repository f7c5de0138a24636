// The output of a network that a metric evaluates.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "anneal/engine/tune/metric/metric.h"

namespace anneal {

// The index of the first that fits, of all or of the one that is `named`; answer.outputs.size() if
// there is none.
size_t find_output(const Answer& answer, const std::string& named,
                   const std::function<bool(const Tensor&)>& fits);
// For when there is none. wanted: "of scores, [1,classes]"; for: the metric's name.
[[noreturn]] void fail_without_output(const Answer& answer, const std::string& named,
                                      std::string_view wanted, std::string_view metric);

}  // namespace anneal
