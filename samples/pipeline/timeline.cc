#include "timeline.h"

#include <algorithm>

namespace {

std::vector<Interval> intervals_of(const std::vector<Lane>& lanes, Stage stage) {
  std::vector<Interval> found;
  for (const Lane& lane : lanes)
    for (const Interval& each : lane.intervals)
      if (each.stage == stage) found.push_back(each);
  return found;
}

}  // namespace

double sum_of(const std::vector<Lane>& lanes, Stage stage) {
  double seconds = 0;
  for (const Interval& each : intervals_of(lanes, stage)) seconds += each.end - each.start;
  return seconds;
}

double covered_by(const std::vector<Lane>& lanes, Stage stage) {
  std::vector<Interval> all = intervals_of(lanes, stage);
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  double seconds = 0, until = 0;
  for (const Interval& each : all) {
    seconds += std::max(0.0, each.end - std::max(each.start, until));
    until = std::max(until, each.end);
  }
  return seconds;
}
