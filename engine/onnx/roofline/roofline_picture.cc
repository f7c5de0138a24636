#include "anneal/engine/onnx/roofline/roofline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "anneal/engine/tune/frontier/label_places.h"
#include "anneal/engine/tune/frontier/svg.h"

namespace anneal {
namespace {

constexpr const char *kFaintInk = "#656d76", *kGridLine = "#e9ebee", *kAxisLine = "#b4b9bf",
                     *kPaper = "#ffffff", *kRoof = "#57606a";
constexpr double kPageWidth = 960, kPageHeight = 640;
constexpr double kChartLeft = 78, kChartRight = 936, kChartTop = 106, kChartBottom = 556;
constexpr double kLeastRadius = 3, kWholeRadius = 75;  // of a step without time; of all of it
constexpr double kLabelSize = 11;
constexpr size_t kMostNames = 7, kLongestName = 32, kLongestHeading = 70;
constexpr double kDegrees = 180 / std::numbers::pi;

struct KindStyle {
  const char *colour, *words;
};
// By DotKind; also distinct for most colour-blind eyes.
constexpr KindStyle kKindStyles[] = {{"#2f6db5", "by the memory"},
                                     {"#2f9e7a", "by a cache"},
                                     {"#e08a1e", "by arithmetic"},
                                     {"#8c959f", "by the start of the step"}};
const KindStyle& style_of(DotKind kind) { return kKindStyles[static_cast<size_t>(kind)]; }

// A logarithmic axis from one place to another.
struct LogAxis {
  double low = 0, high = 1;  // powers of ten
  double at_low = 0, at_high = 0;
  double operator()(double value) const {
    return at_low + (std::log10(value) - low) / (high - low) * (at_high - at_low);
  }
  double pixels_of_decade() const { return std::abs(at_high - at_low) / (high - low); }
};

// An axis for numbers between the two, in whole halves of decades.
LogAxis axis_around(double least, double most, double at_low, double at_high) {
  const double low = std::floor(2 * (std::log10(least) - 0.1)) / 2;
  const double high = std::max(std::ceil(2 * (std::log10(most) + 0.1)) / 2, low + 1);
  return {low, high, at_low, at_high};
}

std::string decade_text(double value) {
  if (value >= 1e4 || value < 1e-3) return fmt::format("{:.0e}", value);
  return fmt::format("{:g}", value);
}

class RooflineChart {
 public:
  RooflineChart(const RooflineCeilings& ceilings, const RooflinePicture& picture)
      : ceilings_(ceilings), picture_(picture) {
    double top = 0;
    for (const ProductType type : picture.types) top = std::max(top, ceilings.rate(type));
    top_rate_ = top;
    const double slowest = ceilings.levels.back().bandwidth();
    double least_x = 0.5 * top / ceilings.levels.front().bandwidth(), most_x = 4 * top / slowest;
    double least_y = top / 100, most_y = top;
    for (const PictureDot& dot : picture.dots) {
      least_x = std::min(least_x, dot.intensity), most_x = std::max(most_x, dot.intensity);
      least_y = std::min(least_y, dot.rate), most_y = std::max(most_y, dot.rate);
    }
    across_ = axis_around(least_x, most_x, kChartLeft, kChartRight);
    up_ = axis_around(least_y / 1e9, most_y / 1e9, kChartBottom, kChartTop);
  }

  std::string text() const {
    LabelPlaces places({kChartLeft + 2, kChartTop + 2, kChartRight - 2, kChartBottom - 2});
    std::string svg = svg_start(kPageWidth, kPageHeight, heading_text());
    svg += heading() + legend() + grid() + remark();
    svg += roofs(places);
    svg += dots();
    for (const ProductType type : picture_.types) svg += rate_name(type);
    svg += dot_names(places);
    return svg + "</svg>\n";
  }

 private:
  double x_of(double intensity) const { return across_(intensity); }
  double y_of(double rate) const { return up_(rate / 1e9); }

  std::string heading_text() const {
    return "Roofline: " + svg_shortened(picture_.title, kLongestHeading);
  }

  std::string heading() const {
    std::string about = ceilings_.device;
    about +=
        ceilings_.date.empty()
            ? ", published ceilings"
            : fmt::format(", {} instructions, {} thread{}, ceilings measured {}", ceilings_.isa,
                          ceilings_.threads, ceilings_.threads == 1 ? "" : "s", ceilings_.date);
    if (ceilings_.was_busy) about += " on a busy machine";
    return svg_text(20, 34, heading_text(), {.size = 18, .weight = "bold"}) +
           svg_text(20, 56, about, {.colour = kFaintInk});
  }

  std::string remark() const {
    std::string text = fmt::format("{} step{} of {:.4g} ms together", picture_.dots.size(),
                                   picture_.dots.size() == 1 ? "" : "s", picture_.milliseconds);
    if (picture_.hidden_share >= 0.001)
      text += fmt::format("; steps without arithmetic, which take {:.1f} %, are not shown",
                          100 * picture_.hidden_share);
    return svg_text(20, kPageHeight - 12, text, {.size = 11, .colour = kFaintInk});
  }

  std::string legend() const {
    constexpr double kY = 82;
    double x = 20;
    std::string svg;
    for (const DotKind kind :
         {DotKind::kMemory, DotKind::kCache, DotKind::kArithmetic, DotKind::kOverhead}) {
      double share = 0;
      for (const PictureDot& dot : picture_.dots)
        if (dot.kind == kind) share += dot.share;
      if (std::ranges::none_of(picture_.dots, [&](auto& dot) { return dot.kind == kind; }))
        continue;
      const std::string words =
          fmt::format("{}{}, {:.1f} % of the time", svg.empty() ? "bound " : "",
                      style_of(kind).words, 100 * share);
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{}\" r=\"6\" fill=\"{}\"/>\n", x + 6, kY,
                         style_of(kind).colour);
      svg += svg_text(x + 17, kY + 4, words);
      x += 17 + svg_text_width(words, 12) + 16;
    }
    return svg + svg_text(x, kY + 4, "area: time", {.colour = kFaintInk});
  }

  // A line for each decade, and its number.
  std::string grid() const {
    std::string svg = fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", kChartLeft, kChartTop,
        kChartRight - kChartLeft, kChartBottom - kChartTop, kPaper);
    const SvgText numbers{.size = 11, .colour = kFaintInk, .anchor = "middle"};
    for (double power = std::ceil(across_.low); power <= across_.high; ++power) {
      const double value = std::pow(10, power), x = across_(value);
      svg += svg_line({x, kChartTop, x, kChartBottom}, kGridLine, 1);
      svg += svg_text(x, kChartBottom + 18, decade_text(value), numbers);
    }
    for (double power = std::ceil(up_.low); power <= up_.high; ++power) {
      const double value = std::pow(10, power), y = up_(value);
      svg += svg_line({kChartLeft, y, kChartRight, y}, kGridLine, 1);
      svg += svg_text(kChartLeft - 8, y + 4, decade_text(value),
                      {.size = 11, .colour = kFaintInk, .anchor = "end"});
    }
    svg += svg_line({kChartLeft, kChartBottom, kChartRight, kChartBottom}, kAxisLine, 1);
    svg += svg_text((kChartLeft + kChartRight) / 2, kChartBottom + 42,
                    "operations per byte of operands and results",
                    {.colour = kFaintInk, .anchor = "middle"});
    const double middle = (kChartTop + kChartBottom) / 2;
    return svg + fmt::format("<g transform=\"rotate(-90 20 {0})\">{1}</g>\n", middle,
                             svg_text(20, middle + 4, "Gop/s, 10^9 operations per second",
                                      {.colour = kFaintInk, .anchor = "middle"}));
  }

  std::string roofs(LabelPlaces& places) const {
    std::string svg;
    for (const MemoryLevel& level : ceilings_.levels) svg += bandwidth_roof(level, places);
    for (const ProductType type : picture_.types) svg += rate_roof(type, places);
    return svg;
  }

  // From the frame to the highest rate; its words stand along the line, at its lower end.
  std::string bandwidth_roof(const MemoryLevel& level, LabelPlaces& places) const {
    const double bandwidth = level.bandwidth();
    const double left =
        std::max(std::pow(10, across_.low), std::pow(10, up_.low) * 1e9 / bandwidth);
    const double right = std::min(top_rate_ / bandwidth, std::pow(10, across_.high));
    if (left >= right) return {};
    const SvgLine line{x_of(left), y_of(left * bandwidth), x_of(right), y_of(right * bandwidth)};
    places.keep_clear(line);
    const double slope = std::atan2(line.y2 - line.y1, line.x2 - line.x1) * kDegrees;
    const std::string words = fmt::format("{} {:.4g} GB/s", level.name, bandwidth / 1e9);
    const std::string text = svg_text(line.x1 + 10, line.y1 - 5, words,
                                      {.size = kLabelSize, .colour = kRoof, .has_halo = true});
    return svg_line(line, kRoof, 1.5) +
           fmt::format("<g transform=\"rotate({:.2f} {:.1f} {:.1f})\">{}</g>\n", slope, line.x1,
                       line.y1, text);
  }

  // From the fastest level's roof to the frame.
  std::string rate_roof(ProductType type, LabelPlaces& places) const {
    const double rate = ceilings_.rate(type), y = y_of(rate);
    const double left = x_of(rate / ceilings_.levels.front().bandwidth());
    if (left >= kChartRight) return {};
    const SvgLine line{std::max(left, kChartLeft), y, kChartRight, y};
    places.keep_clear(line);
    places.keep_free(
        {kChartRight - svg_text_width(rate_words(type), kLabelSize) - 8, y - 17, kChartRight, y});
    return svg_line(line, kRoof, 1.5);
  }

  std::string rate_words(ProductType type) const {
    return fmt::format("{} arithmetic {:.4g} Gop/s", to_string(type), ceilings_.rate(type) / 1e9);
  }

  // Above the line and above the circles.
  std::string rate_name(ProductType type) const {
    return svg_text(kChartRight - 6, y_of(ceilings_.rate(type)) - 5, rate_words(type),
                    {.size = kLabelSize, .colour = kRoof, .anchor = "end", .has_halo = true});
  }

  static double radius_of(const PictureDot& dot) {
    return std::max(kWholeRadius * std::sqrt(dot.share), kLeastRadius);
  }

  // The largest first, so that small ones lie above them.
  std::vector<const PictureDot*> by_share() const {
    std::vector<const PictureDot*> order;
    for (const PictureDot& dot : picture_.dots) order.push_back(&dot);
    std::ranges::stable_sort(order, std::greater(), &PictureDot::share);
    return order;
  }

  std::string dots() const {
    std::string svg;
    for (const PictureDot* const dot : by_share())
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" fill-opacity=\"0.55\" "
          "stroke=\"{}\" stroke-width=\"1\"><title>{}</title></circle>\n",
          x_of(dot->intensity), y_of(dot->rate), radius_of(*dot), style_of(dot->kind).colour,
          kPaper, svg_escaped(dot->about));
    return svg;
  }

  std::string dot_names(LabelPlaces& places) const {
    std::vector<const PictureDot*> order = by_share();
    for (const PictureDot* const dot : order) {
      const double x = x_of(dot->intensity), y = y_of(dot->rate), radius = radius_of(*dot);
      places.keep_free({x - radius, y - radius, x + radius, y + radius});
    }
    order.resize(std::min(order.size(), kMostNames));
    std::string leaders, names;  // whose halos lie above leaders
    for (const PictureDot* const dot : order) add_name(*dot, places, leaders, names);
    return leaders + names;
  }

  void add_name(const PictureDot& dot, LabelPlaces& places, std::string& leaders,
                std::string& names) const {
    const std::string words =
        fmt::format("{} {:.1f} %", svg_shortened(dot.name, kLongestName), 100 * dot.share);
    const auto place = places.place(x_of(dot.intensity), y_of(dot.rate), radius_of(dot),
                                    svg_text_width(words, kLabelSize) + 8, kLabelSize + 3, 160);
    if (!place.is_free) return;
    if (place.has_leader) leaders += svg_line(place.leader, kFaintInk, 0.8);
    names += svg_text((place.box.left + place.box.right) / 2, place.box.bottom - 3, words,
                      {.size = kLabelSize, .anchor = "middle", .has_halo = true});
  }

  const RooflineCeilings& ceilings_;
  const RooflinePicture& picture_;
  double top_rate_ = 0;
  LogAxis across_, up_;
};

}  // namespace

std::string roofline_svg(const RooflineCeilings& ceilings, const RooflinePicture& picture) {
  return RooflineChart(ceilings, picture).text();
}

}  // namespace anneal
