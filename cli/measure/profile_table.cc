#include "anneal/cli/measure/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/cli/measure/access_table.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"

namespace anneal {

void ProfileTable::add(const std::vector<CountedStep>& times) {
  totals_.resize(std::max(totals_.size(), times.size()));
  for (size_t i = 0; i < times.size(); ++i) {
    totals_[i].step = times[i].step;
    totals_[i].kernel = times[i].kernel;
    totals_[i].microseconds += times[i].microseconds;
    totals_[i].of_runs.push_back(times[i].microseconds);
    totals_[i].times += times[i].times;
    add_counts(totals_[i].functions, times[i].functions);
  }
  ++runs_;
}

double ProfileTable::all() const {
  double all = 0;
  for (const StepTotal& total : totals_) all += total.microseconds;
  return all;
}

std::string ProfileTable::text() const {
  const double sum = all();
  const auto cells = [&](double microseconds) {
    return std::pair(fmt::format("{:.1f}", microseconds / std::max(runs_, 1)),
                     fmt::format("{:.1f}", sum > 0 ? 100 * microseconds / sum : 0));
  };
  const bool once = std::all_of(totals_.begin(), totals_.end(), [&](const StepTotal& total) {
    return total.times == 0 || total.times == runs_;
  });
  Rows steps = {{"#", "step", "kernel", "us", "%", once ? "" : "times"}};
  std::map<std::string, double> by_kernel;
  std::vector<size_t> ran;  // the steps that did, the longest first
  for (size_t i = 0; i < totals_.size(); ++i)
    if (totals_[i].times > 0) ran.push_back(i);
  std::stable_sort(ran.begin(), ran.end(), [&](size_t a, size_t b) {
    return totals_[a].microseconds > totals_[b].microseconds;
  });
  for (const size_t i : ran) {
    const StepTotal& total = totals_[i];
    const auto [time, share] = cells(total.microseconds);
    const double times = static_cast<double>(total.times) / runs_;
    steps.push_back({fmt::format("{}", i + 1), total.step, total.kernel, time, share,
                     once ? "" : number_text(times)});
    by_kernel[total.kernel] += total.microseconds;
  }
  std::vector<std::pair<double, std::string>> order;
  order.reserve(by_kernel.size());
  for (const auto& [kernel, microseconds] : by_kernel) order.emplace_back(-microseconds, kernel);
  std::sort(order.begin(), order.end());
  Rows kernels = {{"kernel", "us", "%"}};
  for (const auto& [negative, kernel] : order) {
    const auto [time, share] = cells(-negative);
    kernels.push_back({kernel, time, share});
  }
  return table_text(steps, {true, false, false, true, true, true}) + "\n" +
         table_text(kernels, {false, true, true}) + accesses();
}

std::string ProfileTable::accesses() const {
  std::string text;
  for (const StepTotal& total : totals_)
    if (!total.functions.empty())
      text += fmt::format("\nstep {}\n{}", printable(total.step),
                          access_text(total.functions, std::max(runs_, 1)));
  if (text.empty()) return text;
  return "\nAccesses to memory, sectors a request; * above 1.5 times the ideal sectors or above "
         "2-way bank conflicts\n" +
         text;
}

std::vector<TypicalStep> ProfileTable::typical() const {
  std::vector<TypicalStep> steps;
  for (const StepTotal& total : totals_)
    steps.push_back({median(total.of_runs), static_cast<double>(total.times) / std::max(runs_, 1)});
  return steps;
}

Json ProfileTable::json() const {
  const double sum = all();
  Json steps = Json::array();
  for (const StepTotal& total : totals_) {
    steps.push_back({{"step", total.step},
                     {"kernel", total.kernel},
                     {"microseconds", total.microseconds / std::max(runs_, 1)},
                     {"times", static_cast<double>(total.times) / std::max(runs_, 1)},
                     {"share", sum > 0 ? total.microseconds / sum : 0}});
    if (!total.functions.empty())
      steps.back()["functions"] = access_json(total.functions, std::max(runs_, 1));
  }
  return steps;
}

}  // namespace anneal
