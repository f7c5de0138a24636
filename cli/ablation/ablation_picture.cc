// The waterfall of an ablation: a bar from the latency before to the latency after each family.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/cli/ablation/ablation.h"
#include "anneal/cli/output/print.h"
#include "anneal/engine/tune/frontier/svg.h"

namespace anneal {
namespace {

constexpr const char *kDark = "#24292f", *kPale = "#57606a", *kRule = "#d0d7de",
                     *kTotal = "#2f6db5", *kSaved = "#2f9e7a", *kLost = "#c4402f";
constexpr double kPictureWidth = 960, kFirstRow = 96, kRowHeight = 46, kBarHeight = 26, kFoot = 46;
constexpr double kBarsFrom = 232, kBarsTo = 700, kWordsFrom = 714, kLeastBar = 1.5;
constexpr double kLeastValue = 1e-12;
constexpr double kLargestLinear = 8;  // beyond this ratio, equal lengths are equal factors
constexpr double kMostDecades = 6;    // with a line for each
constexpr size_t kLongestFile = 48, kLongestMachine = 110;

// The largest 1, 2 or 5 times a power of ten that is no larger; and the next one.
double step_below(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {5.0, 2.0})
    if (step * power <= value) return step * power;
  return power;
}
double step_above(double step) { return step_below(2.6 * step); }

class Waterfall {
 public:
  explicit Waterfall(const Ablation& ablation) : ablation_(ablation) {
    for (const AblationRow& row : ablation.rows)
      values_.push_back(ablation.has_times() ? median(row.milliseconds)
                                             : static_cast<double>(row.moved_bytes));
    largest_ = std::max(*std::ranges::max_element(values_), kLeastValue);
    const double least = std::max(*std::ranges::min_element(values_), kLeastValue);
    if (largest_ > kLargestLinear * least) axis_from_ = step_below(least / 1.2);
  }

  std::string text() const {
    const double height = kFirstRow + kRowHeight * static_cast<double>(values_.size() + 1) + kFoot;
    const std::string title = fmt::format("{}: {} with each family of optimizations",
                                          svg_shortened(name_of_file(), kLongestFile),
                                          ablation_.has_times() ? "latency" : "bytes moved");
    std::string svg = svg_start(kPictureWidth, height, title);
    svg += svg_text(20, 34, title, {.size = 18, .weight = "bold"});
    svg += svg_text(20, 56, svg_shortened(subtitle(), kLongestMachine), {.colour = kPale});
    svg += svg_line({kBarsFrom, kFirstRow - 6, kBarsFrom, height - kFoot + 4}, kRule, 1);
    svg += grid(height - kFoot + 4);
    for (size_t i = 0; i < values_.size(); ++i) svg += row(i);
    svg += total();
    svg += svg_text(20, height - 18, foot(), {.size = 11, .colour = kPale});
    return svg + "</svg>\n";
  }

 private:
  std::string name_of_file() const {
    return ablation_.file.substr(ablation_.file.find_last_of('/') + 1);
  }
  std::string subtitle() const {
    return fmt::format("{}, {}, {}", ablation_.target, ablation_.machine,
                       count_text(static_cast<uint64_t>(ablation_.threads), "thread"));
  }
  std::string foot() const {
    std::string text = "Each row has all rows above it. ";
    text += ablation_.has_times() ? "Latency is the median of all runs. Grey: may be noise."
                                  : "The device has no times.";
    if (is_logarithmic()) text += " The axis is logarithmic.";
    return text;
  }
  bool is_logarithmic() const { return axis_from_ > 0; }
  double x_of(double value) const {
    const double share = !is_logarithmic() ? value / largest_
                         : value <= axis_from_
                             ? 0
                             : std::log(value / axis_from_) / std::log(largest_ / axis_from_);
    return kBarsFrom + share * (kBarsTo - kBarsFrom);
  }
  // Lines for a logarithmic axis; the lengths of a linear one need none.
  std::string grid(double bottom) const {
    if (!is_logarithmic()) return {};
    std::string svg;
    const double decades = std::log10(largest_ / axis_from_);
    const double factor = std::pow(10, std::ceil(decades / kMostDecades));
    for (double at = axis_from_; at <= largest_;
         at = decades > kMostDecades / 2 ? factor * at : step_above(at)) {
      svg += svg_line({x_of(at), kFirstRow - 6, x_of(at), bottom}, kRule, 1);
      svg += svg_text(x_of(at), kFirstRow - 10, value_text(at),
                      {.size = 10, .colour = kPale, .anchor = "middle"});
    }
    return svg;
  }
  static double y_of(size_t row) { return kFirstRow + kRowHeight * static_cast<double>(row); }
  std::string value_text(double value) const {
    return ablation_.has_times() ? milliseconds_text(value)
                                 : bytes_text(static_cast<uint64_t>(std::llround(value)));
  }

  std::string bar(double y, double from, double to, const char* colour) const {
    const double left = x_of(std::min(from, to));
    const double width = std::max(x_of(std::max(from, to)) - left, kLeastBar);
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" fill=\"{}\"/>\n",
        left, y, width, kBarHeight, colour);
  }
  std::string words(double y, const std::string& name, const std::string& change,
                    const std::string& below) const {
    return svg_text(kBarsFrom - 12, y + 18, name, {.size = 13, .colour = kDark, .anchor = "end"}) +
           svg_text(kWordsFrom, y + 11, change, {.size = 13, .colour = kDark, .weight = "bold"}) +
           svg_text(kWordsFrom, y + 26, below, {.size = 11, .colour = kPale});
  }
  std::string below_text(const AblationRow& row) const {
    std::string text =
        ablation_.is_for_gpu ? count_text(row.launches, "launch") : count_text(row.steps, "step");
    if (ablation_.has_times()) text += fmt::format(", {} moved", bytes_text(row.moved_bytes));
    return text;
  }

  // The bar, and a line down from where it ends to the next one.
  std::string row(size_t i) const {
    const AblationRow& row = ablation_.rows[i];
    const double y = y_of(i), now = values_[i];
    const std::string link = svg_line({x_of(now), y + kBarHeight, x_of(now), y + kRowHeight}, kPale,
                                      1, " stroke-dasharray=\"2 3\"");
    if (i == 0)
      return bar(y, 0, now, kTotal) + link + words(y, row.name, value_text(now), below_text(row));
    const double before = values_[i - 1];
    const double share = before > 0 ? 100 * (now - before) / before : 0;
    if (now == before)
      return bar(y, before, now, kPale) + link + words(y, row.name, "no change", below_text(row));
    const char* sign = now > before ? "+" : "\u2212";
    const std::string change = fmt::format(
        "{}{} ({}{:.1f} %)", sign, value_text(std::abs(now - before)), sign, std::abs(share));
    const bool is_noise =
        ablation_.has_times() && is_within_noise(ablation_.rows[i - 1], ablation_.rows[i]);
    return bar(y, before, now,
               is_noise       ? kPale
               : now > before ? kLost
                              : kSaved) +
           link + words(y, row.name, change + (is_noise ? ", noise" : ""), below_text(row));
  }
  std::string total() const {
    const double y = y_of(values_.size()), now = values_.back();
    return bar(y, 0, now, kTotal) +
           words(y, "all of it",
                 fmt::format("{}, {:.3g} times {}", value_text(now),
                             now > 0 ? values_.front() / now : 1,
                             ablation_.has_times() ? "as fast" : "less"),
                 fmt::format("error {}, relative {}",
                             number_text(ablation_.rows.back().error.max_abs, 2),
                             number_text(ablation_.rows.back().error.relative, 2)));
  }

  const Ablation& ablation_;
  std::vector<double> values_;  // by row
  double largest_ = 0;
  double axis_from_ = 0;  // where a logarithmic axis begins; 0: it is linear
};

}  // namespace

std::string ablation_svg(const Ablation& ablation) { return Waterfall(ablation).text(); }

}  // namespace anneal
