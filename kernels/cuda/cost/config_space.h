// The configurations of a kernel: the choice among them, and their tactics.
#pragma once
#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace anneal::cuda {

// Those that fit, as a table in order of preference.
template <class Config>
class ConfigSpace {
 public:
  explicit constexpr ConfigSpace(std::span<const Config> all) : all_(all) {}
  std::span<const Config> all() const { return all_; }

  // The one of the least cost, the first of several; null if none fits.
  template <class Fits, class Cost>
  const Config* cheapest(const Fits& fits, const Cost& cost) const {
    const Config* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const Config& config : all_) {
      if (!fits(config)) continue;
      const double now = cost(config);
      if (now < least) least = now, best = &config;
    }
    return best;
  }

  // The tactics of those that fit, of the least cost first; cheapest() is the first.
  template <class Fits, class Cost>
  std::vector<std::vector<std::byte>> tactics(const Fits& fits, const Cost& cost) const {
    std::vector<std::pair<double, const Config*>> found;
    for (const Config& config : all_)
      if (fits(config)) found.emplace_back(cost(config), &config);
    std::ranges::stable_sort(found, {}, &std::pair<double, const Config*>::first);
    std::vector<std::vector<std::byte>> tactics;
    for (const auto& [seconds, config] : found) tactics.push_back(tactic_of(*config));
    return tactics;
  }

  // The one that tactic_of() writes so; nullopt if there is none that fits.
  template <class Fits>
  std::optional<Config> of_tactic(std::span<const std::byte> tactic, const Fits& fits) const {
    for (const Config& config : all_)
      if (fits(config) && std::ranges::equal(tactic_of(config), tactic)) return config;
    return std::nullopt;
  }

 private:
  std::span<const Config> all_;
};

}  // namespace anneal::cuda
