#include "anneal/engine/tune/search/mix_front.h"

#include <algorithm>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

// A mix of the first groups, as a step behind one of fewer groups.
struct Partial {
  double milliseconds, output_error;
  uint32_t before;  // in the front of one group less
  uint8_t choice;
};

bool is_before(const Partial& a, const Partial& b) {
  if (a.milliseconds != b.milliseconds) return a.milliseconds < b.milliseconds;
  if (a.output_error != b.output_error) return a.output_error < b.output_error;
  return a.before != b.before ? a.before < b.before : a.choice < b.choice;
}

// Keeps a mix only if every faster one has a larger error.
void keep_front(std::vector<Partial>& mixes) {
  std::ranges::sort(mixes, is_before);
  size_t kept = 0;
  for (const Partial& mix : mixes)
    if (kept == 0 || mix.output_error < mixes[kept - 1].output_error) mixes[kept++] = mix;
  mixes.resize(kept);
}

// Evenly over the front, its ends among them.
void thin(std::vector<Partial>& mixes, size_t most) {
  if (mixes.size() <= most) return;
  for (size_t i = 0; i < most; ++i) mixes[i] = mixes[i * (mixes.size() - 1) / (most - 1)];
  mixes.resize(most);
}

}  // namespace

std::vector<Mix> mix_front(std::span<const std::vector<ChoiceCost>> groups, size_t most) {
  check(most >= 2, "a front has two ends");
  std::vector<std::vector<Partial>> fronts = {{{0, 0, 0, 0}}};
  for (const std::vector<ChoiceCost>& choices : groups) {
    check(!choices.empty() && choices.size() <= 256, "a group has choices");
    const std::vector<Partial>& before = fronts.back();
    std::vector<Partial> next;
    next.reserve(before.size() * choices.size());
    for (size_t i = 0; i < before.size(); ++i)
      for (size_t k = 0; k < choices.size(); ++k)
        next.push_back({before[i].milliseconds + choices[k].milliseconds,
                        before[i].output_error + choices[k].output_error, static_cast<uint32_t>(i),
                        static_cast<uint8_t>(k)});
    keep_front(next);
    thin(next, most);
    fronts.push_back(std::move(next));
  }
  std::vector<Mix> mixes;
  for (const Partial& end : fronts.back()) {
    Mix mix{std::vector<uint8_t>(groups.size()), end.milliseconds, end.output_error};
    const Partial* at = &end;
    for (size_t group = groups.size(); group-- > 0; at = &fronts[group][at->before])
      mix.choices[group] = at->choice;
    mixes.push_back(std::move(mix));
  }
  return mixes;
}

}  // namespace anneal
