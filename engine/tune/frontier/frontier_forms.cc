// A frontier in words: as a table, as CSV, and the gain of the chosen point in a sentence.
#include "anneal/engine/tune/frontier/frontier_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr size_t kMostKept = 12;  // lines
constexpr size_t kLongestName = 40;

size_t width(std::string_view text) {  // on a terminal
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string shortened(std::string_view text) {
  if (width(text) <= kLongestName) return std::string(text);
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end)
    if ((static_cast<uint8_t>(text[end]) & 0xC0) != 0x80 && seen++ == kLongestName - 3) break;
  return std::string(text.substr(0, end)) + "...";
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == 0) return "-";
  const auto value = static_cast<double>(bytes);
  if (value < 999.5e3) return fmt::format("{:.1f} kB", value / 1e3);
  return value < 999.5e6 ? fmt::format("{:.1f} MB", value / 1e6)
                         : fmt::format("{:.2f} GB", value / 1e9);
}

// Decimals with which the largest of a column has four digits.
int decimals_of(double largest) {
  if (!std::isfinite(largest) || largest <= 0) return 2;
  return std::clamp(3 - static_cast<int>(std::floor(std::log10(largest))), 0, 9);
}

std::string number_text(double value, int decimals) {
  if (std::isnan(value)) return "-";
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

// How many times as fast as the model in f32; none where one is modelled and the other measured.
std::optional<double> speed_of(const Frontier& frontier, const FrontierPoint& point) {
  const FrontierPoint* f32 = f32_point(frontier);
  if (!f32 || f32->is_modelled != point.is_modelled) return std::nullopt;
  const double speed = f32->milliseconds / point.milliseconds;
  if (!std::isfinite(speed) || speed <= 0) return std::nullopt;
  return speed;
}

struct Column {
  std::string name, unit;
  bool is_left = false;
  std::vector<std::string> cells{};  // of the points
};

class Table {
 public:
  explicit Table(const Frontier& frontier) : frontier_(frontier) {
    for (const FrontierPoint& point : frontier.points) {
      if (std::isfinite(point.milliseconds))
        slowest_ = std::max({slowest_, point.milliseconds, point.milliseconds_p99});
      for (const MeasuredScore* score : scores_of(point))
        for (const double value : {score->score, score->drop_low, score->drop_high})
          if (std::isfinite(value)) largest_ = std::max(largest_, std::abs(value));
    }
    score_decimals_ = frontier.unit == "%" ? 2 : decimals_of(largest_);
  }

  std::string text() {
    add_points();
    add_claims();
    add_scores(frontier_.metric, [](const FrontierPoint& point) { return &point.search; });
    if (std::ranges::any_of(frontier_.points,
                            [](auto& each) { return each.confirmed.has_value(); }))
      add_scores("confirmed", [](const FrontierPoint& point) {
        return point.confirmed ? &*point.confirmed : nullptr;
      });
    add("engine", "", [](auto& point) { return bytes_text(point.engine_bytes); });
    add("memory", "", [](auto& point) { return bytes_text(point.memory_bytes); });
    return heading() + rows() + legend() + outcome() + kept() + warnings();
  }

 private:
  static std::vector<const MeasuredScore*> scores_of(const FrontierPoint& point) {
    std::vector<const MeasuredScore*> scores = {&point.search};
    if (point.confirmed) scores.push_back(&*point.confirmed);
    return scores;
  }
  static bool has_claim(const FrontierPoint& point) { return point.claimed.has_value(); }
  const FrontierPoint* chosen() const {
    return frontier_.chosen < frontier_.points.size() ? &frontier_.points[frontier_.chosen]
                                                      : nullptr;
  }

  template <class Cell>
  void add(std::string name, std::string unit, const Cell& cell, bool is_left = false) {
    Column column{std::move(name), std::move(unit), is_left};
    for (const FrontierPoint& point : frontier_.points) column.cells.push_back(cell(point));
    columns_.push_back(std::move(column));
  }

  void add_points() {
    const int decimals = decimals_of(slowest_);
    add("", "", [&](auto& point) {
      return fmt::format("{} {}", &point == chosen() ? "->" : "  ",
                         point.is_on_frontier ? "*" : " ");
    });
    add(
        "point", "", [](auto& point) { return shortened(point.name); }, true);
    add("median", "ms", [&](auto& point) {
      return (point.is_modelled ? "~" : "") + number_text(point.milliseconds, decimals);
    });
    add("p99", "ms", [&](auto& point) {
      return point.is_modelled ? "-" : number_text(point.milliseconds_p99, decimals);
    });
    add("speed", "of f32", [&](auto& point) {
      const auto speed = speed_of(frontier_, point);
      return speed ? fmt::format("{:.2f}x", *speed) : "-";
    });
  }

  void add_claims() {
    if (std::ranges::none_of(frontier_.points, has_claim)) return;
    add("claimed", frontier_.unit, [&](auto& point) {
      return point.claimed ? number_text(*point.claimed, score_decimals_) : "-";
    });
  }

  template <class Of>
  void add_scores(std::string name, const Of& of) {
    add(std::move(name), frontier_.unit, [&](auto& point) {
      const MeasuredScore* score = of(point);
      return score ? number_text(score->score, score_decimals_) : "-";
    });
    if (frontier_.budget_is_score) return;
    // Ends of intervals stand below each other.
    size_t low_width = 0, high_width = 0;
    const auto end = [&](double value) { return number_text(value, score_decimals_); };
    for (const FrontierPoint& point : frontier_.points)
      if (const MeasuredScore* score = of(point); score && &point != f32_point(frontier_)) {
        low_width = std::max(low_width, end(score->drop_low).size());
        high_width = std::max(high_width, end(score->drop_high).size());
      }
    add("drop (95 %)", std::string(drop_unit(frontier_)), [&](auto& point) -> std::string {
      const MeasuredScore* score = of(point);
      if (!score || &point == f32_point(frontier_)) return "-";
      return fmt::format("{} ({:>{}} to {:>{}})", end(score->drop), end(score->drop_low), low_width,
                         end(score->drop_high), high_width);
    });
  }

  std::string heading() const {
    std::string text = fmt::format("{} on {}", frontier_.model, frontier_.target);
    if (frontier_.threads > 0)
      text += fmt::format(", {} thread{}", frontier_.threads, frontier_.threads == 1 ? "" : "s");
    const FrontierPoint* point = chosen();
    text += fmt::format("\n{}", frontier_.metric);
    if (point) {
      text += fmt::format(" of {} samples searched with", point->search.samples);
      if (point->confirmed)
        text += fmt::format(", confirmed on {} others", point->confirmed->samples);
    }
    if (frontier_.budget_is_score)
      text += fmt::format("; budget: {:g}{}{} or more", frontier_.budget,
                          frontier_.unit.empty() ? "" : " ", frontier_.unit);
    else
      text += fmt::format("; budget: a drop of {:g}{}{}", frontier_.budget,
                          frontier_.unit.empty() ? "" : " ", drop_unit(frontier_));
    return text + "\n\n";
  }

  std::string rows() const {
    std::vector<std::string> lines(2 + frontier_.points.size());
    for (const Column& column : columns_) {
      size_t widest = std::max(width(column.name), width(column.unit));
      for (const std::string& cell : column.cells) widest = std::max(widest, width(cell));
      for (size_t i = 0; i < lines.size(); ++i) {
        const std::string& cell = i == 0 ? column.name : i == 1 ? column.unit : column.cells[i - 2];
        const std::string space(widest - width(cell), ' ');
        if (&column != &columns_[0]) lines[i] += &column == &columns_[1] ? " " : "  ";
        lines[i] += column.is_left ? cell + space : space + cell;
      }
    }
    std::string text;
    for (std::string& line : lines) {
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

  std::string legend() const {
    std::string text = "\n->: chosen; *: no point is both faster and more accurate";
    if (std::ranges::any_of(frontier_.points, &FrontierPoint::is_modelled))
      text += "; ~: modelled, not measured";
    if (std::ranges::any_of(frontier_.points, has_claim))
      text += fmt::format("\nclaimed: the {}score that it and all slower points * reach",
                          is_all_confirmed(frontier_) ? "confirmed " : "");
    return text + "\n";
  }

  std::string outcome() const {
    const FrontierSummary summary = summarize(frontier_);
    std::string text = summary.speed;
    if (!summary.loss.empty()) text += (text.empty() ? "" : ", ") + summary.loss;
    if (text.empty()) return text;
    const FrontierPoint* point = chosen();
    if (!summary.loss.empty() && point->confirmed)
      text +=
          fmt::format(", on {} samples {}", point->confirmed->samples, what_confirms(frontier_));
    return text + "\n";
  }

  std::string kept() const {
    // Groups with the same precision and the same reason, keyed by the first group.
    std::vector<std::pair<const KeptHigh*, size_t>> reasons;
    for (const KeptHigh& each : frontier_.kept_high) {
      const auto found = std::ranges::find_if(reasons, [&](auto& reason) {
        return reason.first->why == each.why && reason.first->precision == each.precision;
      });
      if (found != reasons.end())
        ++found->second;
      else
        reasons.emplace_back(&each, 0);
    }
    if (reasons.empty()) return {};
    std::string text = fmt::format("\nKept high: {} of {} groups of layers\n",
                                   frontier_.kept_high.size(), frontier_.groups.size());
    const size_t shown = std::min(kMostKept, reasons.size());
    size_t widest = 0, named = 0;
    for (size_t i = 0; i < shown; ++i) widest = std::max(widest, width(name_of(*reasons[i].first)));
    for (size_t i = 0; i < shown; ++i) {
      const auto& [kept, others] = reasons[i];
      const std::string name = name_of(*kept);
      text += fmt::format("  {}{}  {:4}  {}", name, std::string(widest - width(name), ' '),
                          anneal::to_string(kept->precision), kept->why);
      if (others > 0) text += fmt::format(" ({} other{}, too)", others, others == 1 ? "" : "s");
      text += "\n";
      named += 1 + others;
    }
    if (named < frontier_.kept_high.size())
      text += fmt::format("  and {} more\n", frontier_.kept_high.size() - named);
    return text;
  }
  std::string name_of(const KeptHigh& kept) const {
    return shortened(frontier_.groups[kept.group].name);
  }

  std::string warnings() const {
    std::string text = frontier_.warnings.empty() ? "" : "\n";
    for (const std::string& warning : frontier_.warnings)
      text += fmt::format("warning: {}\n", warning);
    return text;
  }

  const Frontier& frontier_;
  double slowest_ = 0, largest_ = 0;
  int score_decimals_ = 2;
  std::vector<Column> columns_;
};

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}
std::string csv_number(double value) {
  return std::isnan(value) ? std::string() : fmt::format("{}", value);
}

}  // namespace

bool is_all_confirmed(const Frontier& frontier) {
  return std::ranges::all_of(frontier.points,
                             [](const FrontierPoint& each) { return each.confirmed.has_value(); });
}

void claim_scores(Frontier& frontier) {
  const bool is_confirmed = is_all_confirmed(frontier);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = frontier.points.size(); i-- > 0;) {
    FrontierPoint& point = frontier.points[i];
    point.claimed.reset();
    const double score = (is_confirmed ? *point.confirmed : point.search).score;
    if (!point.is_on_frontier || std::isnan(score)) continue;
    least = std::min(least, score);
    point.claimed = least;
  }
}

std::string what_confirms(const Frontier& frontier) {
  if (frontier.turned_down == 0) return "held out from the search";
  return fmt::format("which rejected {} faster mix{}", frontier.turned_down,
                     frontier.turned_down == 1 ? "" : "es");
}

const FrontierPoint* f32_point(const Frontier& frontier) {
  for (const FrontierPoint& point : frontier.points)
    if (!point.precisions.empty() &&
        std::ranges::all_of(point.precisions, [](auto each) { return each == Precision::kF32; }))
      return &point;
  return nullptr;
}

std::string_view drop_unit(const Frontier& frontier) {
  return frontier.unit == "%" ? std::string_view("points") : frontier.unit;
}

FrontierSummary summarize(const Frontier& frontier) {
  return at_entry([&] {
    FrontierSummary summary;
    if (frontier.chosen >= frontier.points.size()) return summary;
    const FrontierPoint& point = frontier.points[frontier.chosen];
    summary.speed = point.name;
    if (&point == f32_point(frontier)) {
      summary.speed += ": no faster mix meets the budget";
      return summary;
    }
    if (const auto speed = speed_of(frontier, point))
      summary.speed += fmt::format(": {:.{}f}x as fast as f32{}", *speed, *speed < 1.995 ? 2 : 1,
                                   point.is_modelled ? ", modelled" : "");
    const MeasuredScore& score = point.confirmed ? *point.confirmed : point.search;
    const std::string_view unit = drop_unit(frontier);
    const std::string_view space = unit.empty() ? "" : " ";
    if (frontier.budget_is_score) {
      if (!std::isnan(score.score))
        summary.loss = fmt::format("{} {:.4g}{}{}", frontier.metric, score.score,
                                   frontier.unit.empty() ? "" : " ", frontier.unit);
      return summary;
    }
    if (!std::isfinite(score.drop)) return summary;
    const double largest =
        std::max({std::abs(score.drop), std::abs(score.drop_low), std::abs(score.drop_high)});
    // Two digits of the largest, for an interval is no surer than that.
    const int decimals = std::isfinite(largest) ? std::clamp(decimals_of(largest) - 2, 1, 9) : 2;
    const std::string drop = number_text(score.drop, decimals);
    const bool is_gain = drop.starts_with('-');
    summary.loss = fmt::format("{} {}{}{}", is_gain ? "gains" : "loses",
                               std::string_view(drop).substr(is_gain ? 1 : 0), space, unit);
    if (std::isfinite(largest)) {
      // For a gain, the interval is that of the gain.
      const auto [low, high] = is_gain ? std::pair(-score.drop_high, -score.drop_low)
                                       : std::pair(score.drop_low, score.drop_high);
      summary.loss +=
          fmt::format(" (95 %: {} to {})", number_text(low, decimals), number_text(high, decimals));
    }
    return summary;
  });
}

std::string to_string(const Frontier& frontier, FrontierForm form) {
  return at_entry([&] {
    switch (form) {
      case FrontierForm::kCsv:
        return frontier_csv(frontier);
      case FrontierForm::kJson:
        return frontier_json(frontier);
      case FrontierForm::kSvg:
        return frontier_svg(frontier);
      case FrontierForm::kTable:
        break;
    }
    return frontier_table(frontier);
  });
}

std::string frontier_table(const Frontier& frontier) { return Table(frontier).text(); }

std::string frontier_csv(const Frontier& frontier) {
  std::string text =
      "point,chosen,on_frontier,median_ms,p99_ms,modelled,speed,metric,unit,search_samples,"
      "search_score,search_drop,search_drop_low,search_drop_high,confirmed_samples,"
      "confirmed_score,confirmed_drop,confirmed_drop_low,confirmed_drop_high,claimed_score,output_"
      "error,"
      "engine_bytes,memory_bytes,groups_f32,groups_f16,groups_bf16,groups_int8,command\n";
  for (size_t i = 0; i < frontier.points.size(); ++i) {
    const FrontierPoint& point = frontier.points[i];
    const auto speed = speed_of(frontier, point);
    std::vector<std::string> fields = {csv_field(point.name),
                                       i == frontier.chosen ? "1" : "0",
                                       point.is_on_frontier ? "1" : "0",
                                       csv_number(point.milliseconds),
                                       point.is_modelled ? "" : csv_number(point.milliseconds_p99),
                                       point.is_modelled ? "1" : "0",
                                       speed ? csv_number(*speed) : "",
                                       csv_field(frontier.metric),
                                       csv_field(frontier.unit)};
    const auto add_score = [&](const MeasuredScore& score) {
      fields.push_back(fmt::format("{}", score.samples));
      for (const double value : {score.score, score.drop, score.drop_low, score.drop_high})
        fields.push_back(csv_number(value));
    };
    add_score(point.search);
    if (point.confirmed)
      add_score(*point.confirmed);
    else
      fields.resize(fields.size() + 5);
    fields.push_back(point.claimed ? csv_number(*point.claimed) : "");
    fields.push_back(csv_number(point.output_error));
    fields.push_back(fmt::format("{}", point.engine_bytes));
    fields.push_back(fmt::format("{}", point.memory_bytes));
    for (const Precision precision : kAllPrecisions)
      fields.push_back(fmt::format("{}", std::ranges::count(point.precisions, precision)));
    fields.push_back(csv_field(point.command));
    for (size_t k = 0; k < fields.size(); ++k) text += (k == 0 ? "" : ",") + fields[k];
    text += "\n";
  }
  return text;
}

}  // namespace anneal
