#include "anneal/cli/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/cli/print.h"

namespace anneal {

void ProfileTable::add(const std::vector<StepTime>& times) {
  totals_.resize(std::max(totals_.size(), times.size()));
  for (size_t i = 0; i < times.size(); ++i) {
    totals_[i].step = times[i].step;
    totals_[i].kernel = times[i].kernel;
    totals_[i].microseconds += times[i].microseconds;
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
  Rows steps = {{"step", "kernel", "us", "%"}};
  std::map<std::string, double> by_kernel;
  for (const StepTotal& total : totals_) {
    const auto [time, share] = cells(total.microseconds);
    steps.push_back({total.step, total.kernel, time, share});
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
  return table_text(steps, {false, false, true, true}) + "\n" +
         table_text(kernels, {false, true, true});
}

Json ProfileTable::json() const {
  const double sum = all();
  Json steps = Json::array();
  for (const StepTotal& total : totals_)
    steps.push_back({{"step", total.step},
                     {"kernel", total.kernel},
                     {"microseconds", total.microseconds / std::max(runs_, 1)},
                     {"share", sum > 0 ? total.microseconds / sum : 0}});
  return steps;
}

}  // namespace anneal
