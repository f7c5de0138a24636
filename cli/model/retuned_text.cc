#include "anneal/cli/model/retuned_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"

namespace anneal {

std::string retuned_text(const std::vector<RetunedPlan>& plans) {
  const bool has_profiles =
      std::ranges::any_of(plans, [](const RetunedPlan& plan) { return plan.profile > 0; });
  std::string text;
  for (const RetunedPlan& plan : plans) {
    text += fmt::format("  {}{}: ", printable(plan.target),
                        has_profiles ? fmt::format(", profile {}", plan.profile) : "");
    text += plan.why_not.empty() ? fmt::format("{} of {} have another kernel or tactic\n",
                                               plan.changed, count_text(plan.steps, "step"))
                                 : fmt::format("is unchanged: {}\n", printable(plan.why_not));
  }
  return text;
}

}  // namespace anneal
