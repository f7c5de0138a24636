// A frontier as a picture: latency across, score up.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/tune/frontier/frontier_forms.h"
#include "anneal/engine/tune/frontier/label_places.h"
#include "anneal/engine/tune/frontier/svg.h"

namespace anneal {
namespace {

constexpr const char *kInk = "#24292f", *kFaint = "#656d76", *kGrid = "#e4e6e9", *kAxis = "#b4b9bf",
                     *kPlot = "#ffffff", *kBeyond = "#f9e5e1", *kLimit = "#c4402f",
                     *kFront = "#8c959f";
constexpr double kWidth = 960, kHeight = 600;
constexpr double kLeft = 78, kRight = 936, kTop = 104, kBottom = 524;
constexpr double kRadius = 5.5, kRing = 10, kAtEdge = 10;
constexpr double kLarge = 1e15;  // numbers beyond have no place on an axis
constexpr size_t kLongestLabel = 28, kLongestTitle = 60;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

enum Kind : uint8_t { kFloat, kHalf, kInt8, kMix, kKinds };
// Also distinct for most colour-blind eyes.
constexpr const char* kColours[kKinds] = {"#2f6db5", "#2f9e7a", "#e08a1e", "#8f4fb8"};

Kind kind_of(const Frontier& frontier, const FrontierPoint& point) {
  bool is_float = true, is_half = true, is_int8 = true;
  for (size_t i = 0; i < point.precisions.size() && i < frontier.groups.size(); ++i) {
    const Precision is = point.precisions[i];
    is_float &= is == Precision::kF32;
    is_half &= is == Precision::kF16 || is == Precision::kBF16;
    is_int8 &= is == Precision::kI8 || (is == Precision::kF32 && !frontier.groups[i].can_be_int8);
  }
  return is_float ? kFloat : is_half ? kHalf : is_int8 ? kInt8 : kMix;
}

// The visible part of an axis, and its place.
struct Axis {
  double from = 0, to = 1;        // numbers
  double at_from = 0, at_to = 0;  // pixels
  double operator()(double value) const {
    const double pixels = at_from + (value - from) / (to - from) * (at_to - at_from);
    return std::clamp(pixels, -1e4, 1e4);
  }
};

struct Tick {
  double value = 0;
  std::string text;
};
std::vector<Tick> ticks_of(const Axis& axis, double wanted) {
  const double rough = (axis.to - axis.from) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double each : {5.0, 2.0, 1.0})
    if (each * power >= rough) step = each * power;
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step)), 0.0, 12.0));
  std::vector<Tick> ticks;
  const double first = std::ceil(axis.from / step);
  for (int i = 0; i < 4 * static_cast<int>(wanted); ++i) {
    const double value = (first + i) * step;
    if (value > axis.to) break;
    ticks.push_back({value, std::abs(value) >= 1e6 ? fmt::format("{:g}", value)
                                                   : fmt::format("{:.{}f}", value, decimals)});
  }
  return ticks;
}

struct Dot {
  const FrontierPoint* point = nullptr;
  Kind kind = kMix;
  double score = 0, low = kNaN, high = kNaN;  // of the score
  int edge = 0;                               // 1: above what is seen, -1: below
  double x = 0, y = 0;
  double front_y = 0;  // where the frontier passes: at the claimed score
};

class Picture {
 public:
  explicit Picture(const Frontier& frontier) : frontier_(frontier) {
    is_confirmed_ = is_all_confirmed(frontier);
    for (const FrontierPoint& point : frontier.points) add(point);
    find_limit();
    cut_low_scores();
    scale_latency();
    scale_scores();
    for (Dot& dot : dots_) {
      dot.x = across_(dot.point->milliseconds);
      dot.y = dot.edge == 0 ? up_(dot.score) : dot.edge > 0 ? kTop + kAtEdge : kBottom - kAtEdge;
      const std::optional<double>& claimed = dot.point->claimed;
      dot.front_y = dot.edge == 0 && claimed && std::abs(*claimed) < kLarge
                        ? std::clamp(up_(*claimed), kTop, kBottom)
                        : dot.y;
    }
  }

  std::string text() {
    const std::string title =
        fmt::format("{}: {} against latency", svg_shortened(frontier_.model, kLongestTitle),
                    svg_shortened(frontier_.metric, kLongestTitle));
    std::string svg = svg_start(kWidth, kHeight, title);
    svg += svg_text(20, 34, title, {.size = 18, .weight = "bold"});
    svg += svg_text(20, 55, subtitle(), {.colour = kFaint});
    svg += legend() + ground() + axes() + front() + intervals();
    svg += dots() + names() + missing();
    return svg + "</svg>\n";
  }

 private:
  const MeasuredScore& score_of(const FrontierPoint& point) const {
    return is_confirmed_ ? *point.confirmed : point.search;
  }
  const FrontierPoint* chosen() const {
    return frontier_.chosen < frontier_.points.size() ? &frontier_.points[frontier_.chosen]
                                                      : nullptr;
  }
  std::string with_unit(double score) const {
    return fmt::format("{:.4g}{}{}", score, frontier_.unit.empty() ? "" : " ", frontier_.unit);
  }

  void add(const FrontierPoint& point) {
    const MeasuredScore& score = score_of(point);
    if (!(std::abs(point.milliseconds) < kLarge) || std::isnan(score.score)) {
      missing_.push_back(&point);
      return;
    }
    Dot dot{.point = &point, .kind = kind_of(frontier_, point), .score = score.score};
    if (std::abs(score.score) >= kLarge) dot.edge = score.score > 0 ? 1 : -1;
    const double low = score.score + (score.drop - score.drop_high);
    const double high = score.score + (score.drop - score.drop_low);
    if (std::abs(low) < kLarge && std::abs(high) < kLarge && low < high)
      dot.low = low, dot.high = high;
    dots_.push_back(dot);
  }

  void find_limit() {
    const FrontierPoint* f32 = f32_point(frontier_);
    double limit = kNaN;
    if (frontier_.budget_is_score)
      limit = frontier_.budget;
    else if (f32)
      limit = score_of(*f32).score - frontier_.budget;
    if (std::abs(limit) < kLarge) limit_ = limit;
  }

  // Scores so low that a picture with them would not separate the others.
  void cut_low_scores() {
    std::vector<double> scores, spreads;
    for (const Dot& dot : dots_)
      if (dot.edge == 0) {
        scores.push_back(dot.score);
        if (dot.low < dot.high) spreads.push_back(dot.high - dot.low);
      }
    if (scores.size() < 3) return;
    const double best = std::ranges::max(scores);
    std::ranges::sort(spreads);
    double spread = spreads.empty() ? 0 : spreads[spreads.size() / 2];
    if (limit_) spread = std::max(spread, best - *limit_);
    const double least = best - 8 * spread;
    const auto is_seen = [&](double score) { return score >= least; };
    if (spread <= 0 ||
        2 * static_cast<size_t>(std::ranges::count_if(scores, is_seen)) < scores.size())
      return;
    for (const Dot& dot : dots_)
      if (dot.point == chosen() && dot.edge == 0 && !is_seen(dot.score)) return;
    for (Dot& dot : dots_)
      if (dot.edge == 0 && !is_seen(dot.score)) dot.edge = -1;
  }

  void scale_latency() {
    double least = kLarge, most = 0;
    for (const Dot& dot : dots_) {
      least = std::min(least, dot.point->milliseconds);
      most = std::max(most, dot.point->milliseconds);
    }
    if (most <= 0) least = most = 1;
    // From 0 on, lengths are proportional to the speed.
    const double from = least < 0.6 * most ? 0 : std::max(0.0, least - (most - least));
    across_ = least < most ? Axis{from, most + 0.1 * (most - from), kLeft, kRight}
                           : Axis{0, 2 * most, kLeft, kRight};
  }

  void scale_scores() {
    double low = kLarge, high = -kLarge;
    for (const Dot& dot : dots_) {
      if (dot.edge != 0) continue;
      low = std::min({low, dot.score, std::isnan(dot.low) ? dot.score : dot.low});
      high = std::max({high, dot.score, std::isnan(dot.high) ? dot.score : dot.high});
    }
    if (low > high) low = high = limit_.value_or(0);
    if (limit_ &&
        (high == low || (low - *limit_ < 2 * (high - low) && *limit_ - high < 2 * (high - low)))) {
      low = std::min(low, *limit_);
      high = std::max(high, *limit_);
    }
    const double room = high > low ? 0.1 * (high - low) : std::max(0.01 * std::abs(high), 1e-3);
    const bool is_cut = std::ranges::any_of(dots_, [](auto& dot) { return dot.edge < 0; });
    const bool is_above = std::ranges::any_of(dots_, [](auto& dot) { return dot.edge > 0; });
    up_ = {low - (is_cut ? 1.8 : 1) * room, high + (is_above ? 1.8 : 1) * room, kBottom, kTop};
  }

  std::string subtitle() const {
    std::string text = svg_shortened(frontier_.target, kLongestLabel);
    if (frontier_.threads > 0)
      text += fmt::format(", {} thread{}", frontier_.threads, frontier_.threads == 1 ? "" : "s");
    if (const FrontierPoint* point = chosen()) {
      text += fmt::format("; scores of {} samples ", score_of(*point).samples);
      text += is_confirmed_ ? what_confirms(frontier_) : "of the search";
    }
    return text;
  }

  std::string legend() const {
    constexpr double kY = 80;
    double x = 20;
    std::string svg;
    const auto words = [&](const std::string& text) {
      svg += svg_text(x, kY + 4, text);
      x += svg_text_width(text, 12) + 18;
    };
    std::string half;
    for (const Precision precision : {Precision::kF16, Precision::kBF16})
      for (const Dot& dot : dots_)
        if (dot.kind == kHalf && std::ranges::count(dot.point->precisions, precision) > 0) {
          half += fmt::format("{}{}", half.empty() ? "" : " and ", to_string(precision));
          break;
        }
    const std::string kinds[] = {"f32", half, "int8", "mixed"};
    for (const Kind kind : {kFloat, kHalf, kInt8, kMix})
      if (std::ranges::any_of(dots_, [&](auto& dot) { return dot.kind == kind; })) {
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", x + 5, kY,
                           kRadius, kColours[kind]);
        x += 16;
        words(kinds[kind]);
      }
    if (std::ranges::any_of(dots_, [](auto& dot) { return dot.edge == 0 && dot.low < dot.high; })) {
      svg += interval_at(x + 5, kY - 7, kY + 7, kInk);
      x += 16;
      words("95 % interval of the drop from f32");
    }
    if (std::ranges::count_if(dots_, [](auto& dot) { return dot.point->is_on_frontier; }) > 1) {
      svg += svg_line({x, kY, x + 22, kY}, kFront, 2);
      x += 28;
      words(std::ranges::any_of(dots_, [](auto& dot) { return dot.point->claimed.has_value(); })
                ? "frontier, at the claimed scores"
                : "frontier: no engine is both faster and closer to f32");
    }
    return svg;
  }

  // The area beyond the budget is shaded.
  std::string ground() const {
    std::string svg =
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", kLeft,
                    kTop, kRight - kLeft, kBottom - kTop, kPlot);
    if (!limit_ || *limit_ <= up_.from) return svg;
    const double y = std::max(up_(*limit_), kTop);
    svg += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                       kLeft, y, kRight - kLeft, kBottom - y, kBeyond);
    return svg;
  }

  std::string axes() const {
    std::string svg;
    for (const Tick& tick : ticks_of(up_, 7)) {
      const double y = up_(tick.value);
      svg += svg_line({kLeft, y, kRight, y}, kGrid, 1);
      svg += svg_text(kLeft - 8, y + 4, tick.text, {.size = 11, .colour = kFaint, .anchor = "end"});
    }
    for (const Tick& tick : ticks_of(across_, 10)) {
      const double x = across_(tick.value);
      svg += svg_line({x, kBottom, x, kBottom + 5}, kAxis, 1);
      svg +=
          svg_text(x, kBottom + 19, tick.text, {.size = 11, .colour = kFaint, .anchor = "middle"});
    }
    svg += svg_line({kLeft, kBottom, kRight, kBottom}, kAxis, 1);
    if (limit_ && *limit_ > up_.from && *limit_ < up_.to)
      svg += svg_line({kLeft, up_(*limit_), kRight, up_(*limit_)}, kLimit, 1.2,
                      " stroke-dasharray=\"6 4\"");
    const auto modelled = std::ranges::count_if(frontier_.points, &FrontierPoint::is_modelled);
    svg += svg_text((kLeft + kRight) / 2, kBottom + 42,
                    fmt::format("{} (lower is faster)",
                                modelled > 0 ? "modelled milliseconds per inference, not measured"
                                             : "milliseconds per inference"),
                    {.colour = kFaint, .anchor = "middle"});
    const double middle = (kTop + kBottom) / 2;
    svg += fmt::format("<g transform=\"rotate(-90 20 {0})\">{1}</g>\n", middle,
                       svg_text(20, middle + 4,
                                fmt::format("{}{}{} (higher is better)",
                                            svg_shortened(frontier_.metric, kLongestLabel),
                                            frontier_.unit.empty() ? "" : ", ", frontier_.unit),
                                {.colour = kFaint, .anchor = "middle"}));
    return svg;
  }

  std::vector<const Dot*> dots_of_front() const {
    std::vector<const Dot*> front;
    for (const Dot& dot : dots_)
      if (dot.point->is_on_frontier) front.push_back(&dot);
    std::ranges::stable_sort(front, {}, [](auto* dot) { return dot->point->milliseconds; });
    return front;
  }

  // Towards dots at the edge it is dashed, for it would leave the picture elsewhere.
  std::string front() const {
    const std::vector<const Dot*> front = dots_of_front();
    std::string svg;
    for (size_t i = 1; i < front.size(); ++i)
      svg += svg_line({front[i - 1]->x, front[i - 1]->front_y, front[i]->x, front[i]->front_y},
                      kFront, 2,
                      front[i - 1]->edge != 0 || front[i]->edge != 0 ? " stroke-dasharray=\"2 4\""
                                                                     : " stroke-linecap=\"round\"");
    return svg;
  }

  static std::string interval_at(double x, double top, double bottom, const char* colour) {
    return fmt::format(
        "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {1:.1f}H{4:.1f}M{3:.1f} {2:.1f}H{4:.1f}\" "
        "fill=\"none\" stroke=\"{5}\" stroke-width=\"1.4\" stroke-opacity=\"0.75\"/>\n",
        x, top, bottom, x - 3.5, x + 3.5, colour);
  }
  std::string intervals() const {
    std::string svg;
    for (const Dot& dot : dots_)
      if (dot.edge == 0 && dot.low < dot.high)
        svg += interval_at(dot.x, up_(dot.high), up_(dot.low), kColours[dot.kind]);
    return svg;
  }

  std::string dots() const {
    std::string svg;
    for (const Dot& dot : dots_) {
      const std::string about = svg_escaped(
          fmt::format("{}: {:.4g} ms{}, {}", dot.point->name, dot.point->milliseconds,
                      dot.point->is_modelled ? " (modelled)" : "", with_unit(dot.score)));
      if (dot.point == chosen())
        svg += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"none\" stroke=\"{}\" "
            "stroke-width=\"2.2\"/>\n",
            dot.x, dot.y, kRing, kInk);
      if (dot.edge == 0)
        svg += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"{}\" "
            "stroke-width=\"1.5\"><title>{}</title></circle>\n",
            dot.x, dot.y, kRadius, kColours[dot.kind], kPlot, about);
      else  // an arrow towards where it is
        svg += fmt::format(
            "<path d=\"M{:.1f} {:.1f}h12l-6 {}z\" fill=\"{}\" stroke=\"{}\" "
            "stroke-width=\"1.5\"><title>{}</title></path>\n",
            dot.x - 6, dot.y + (dot.edge > 0 ? 5 : -5), dot.edge > 0 ? -11 : 11, kColours[dot.kind],
            kPlot, about);
    }
    return svg;
  }

  std::string names() const {
    LabelPlaces places({kLeft + 2, kTop + 2, kRight - 2, kBottom - 2});
    const Dot* of_chosen = nullptr;
    for (const Dot& dot : dots_) {
      const double radius = dot.point == chosen() ? kRing + 1 : kRadius + 1;
      if (dot.point == chosen()) of_chosen = &dot;
      places.keep_free({dot.x - radius, dot.y - radius, dot.x + radius, dot.y + radius});
      if (dot.edge == 0 && dot.low < dot.high)
        places.keep_free({dot.x - 4, up_(dot.high) - 1, dot.x + 4, up_(dot.low) + 1});
    }
    const std::vector<const Dot*> front = dots_of_front();
    for (size_t i = 1; i < front.size(); ++i)
      places.keep_clear({front[i - 1]->x, front[i - 1]->front_y, front[i]->x, front[i]->front_y});
    std::string svg = limit_name(places);
    std::vector<const Dot*> others;
    for (const Dot& dot : dots_)
      if (&dot != of_chosen) others.push_back(&dot);
    std::stable_partition(others.begin(), others.end(),
                          [](auto* dot) { return dot->point->is_on_frontier; });
    for (const Dot* dot : others) svg += name_of(*dot, places);
    if (of_chosen) svg += caption(*of_chosen, places);
    return svg;
  }

  std::string limit_name(LabelPlaces& places) const {
    if (!limit_ || *limit_ <= up_.from || *limit_ >= up_.to) return {};
    const std::string words =
        frontier_.budget_is_score
            ? fmt::format("the budget: {} or more", with_unit(*limit_))
            : fmt::format("the budget: {:.4g}{}{} below f32", frontier_.budget,
                          drop_unit(frontier_).empty() ? "" : " ", drop_unit(frontier_));
    const double y = up_(*limit_);
    const PictureBox box{kRight - svg_text_width(words, 11) - 8, y + 2, kRight, y + 18};
    places.keep_clear({kLeft, y, kRight, y});
    places.keep_free(box);
    return svg_text(kRight - 8, y + 15, words, {.size = 11, .colour = kLimit, .anchor = "end"});
  }

  std::string name_of(const Dot& dot, LabelPlaces& places) const {
    constexpr double kSize = 12;
    std::string words = svg_shortened(dot.point->name, kLongestLabel);
    if (dot.edge != 0) words += ": " + with_unit(dot.score);
    const auto place =
        places.place(dot.x, dot.y, kRadius, svg_text_width(words, kSize), kSize + 2, 70);
    // In a crowd, the dot's own title is left.
    if (!place.is_free) return {};
    std::string svg;
    if (place.has_leader) svg += svg_line(place.leader, kFaint, 0.8);
    // Fonts are narrower than the box: what is to the left of the dot ends there.
    const bool is_left = place.box.right<dot.x, is_right = place.box.left> dot.x;
    const double x = is_left    ? place.box.right
                     : is_right ? place.box.left
                                : (place.box.left + place.box.right) / 2;
    return svg + svg_text(x, place.box.bottom - 3, words,
                          {.size = kSize,
                           .anchor = is_left    ? "end"
                                     : is_right ? "start"
                                                : "middle",
                           .has_halo = true});
  }

  std::string caption(const Dot& dot, LabelPlaces& places) const {
    FrontierSummary summary = summarize(frontier_);
    if (!is_confirmed_ && dot.point->confirmed && !summary.loss.empty())
      summary.loss += ", confirmed";
    const double width =
        std::max(1.12 * svg_text_width(summary.speed, 13), svg_text_width(summary.loss, 12)) + 20;
    const double height = summary.loss.empty() ? 28 : 46;
    const auto place = places.place(dot.x, dot.y, kRing, width, height, 260);
    const PictureBox& box = place.box;
    std::string svg = svg_line(place.leader, kInk, 1.2);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\" fill=\"{}\" "
        "stroke=\"{}\" stroke-width=\"1.2\"/>\n",
        box.left, box.top, width, height, kPlot, kInk);
    const double middle = (box.left + box.right) / 2;
    svg += svg_text(middle, box.top + 19, summary.speed,
                    {.size = 13, .anchor = "middle", .weight = "bold"});
    if (!summary.loss.empty())
      svg += svg_text(middle, box.top + 36, summary.loss, {.anchor = "middle"});
    return svg;
  }

  std::string missing() const {
    if (missing_.empty()) return {};
    std::string names;
    for (size_t i = 0; i < missing_.size() && i < 4; ++i)
      names += (i == 0 ? "" : ", ") + svg_shortened(missing_[i]->name, kLongestLabel);
    if (missing_.size() > 4) names += fmt::format(" and {} more", missing_.size() - 4);
    return svg_text(20, kHeight - 12, fmt::format("Without a score or a latency: {}", names),
                    {.size = 11, .colour = kFaint});
  }

  const Frontier& frontier_;
  bool is_confirmed_ = false;  // all points are
  std::vector<Dot> dots_;
  std::vector<const FrontierPoint*> missing_;
  std::optional<double> limit_;  // scores below are beyond the budget
  Axis across_, up_;
};

}  // namespace

std::string frontier_svg(const Frontier& frontier) { return Picture(frontier).text(); }

}  // namespace anneal
