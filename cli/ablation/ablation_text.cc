#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/ablation/ablation.h"
#include "anneal/cli/measure/measure.h"
#include "anneal/cli/measure/measured_forms.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/version.h"

namespace anneal {
namespace {

// "1.25x": the speed as a multiple; "~1.01x": it may be noise.
std::string speedup_text(const AblationRow& over, const AblationRow& row) {
  return fmt::format("{}{:.2f}x", is_within_noise(over, row) ? "~" : "",
                     median(over.milliseconds) / median(row.milliseconds));
}

std::vector<std::string> cells_of(const Ablation& ablation, size_t i) {
  const AblationRow& row = ablation.rows[i];
  std::vector<std::string> cells = {row.name, fmt::format("{}", row.steps)};
  if (ablation.is_for_gpu) cells.push_back(fmt::format("{}", row.launches));
  cells.push_back(bytes_text(row.moved_bytes));
  cells.push_back(row.activation_bytes ? bytes_text(*row.activation_bytes) : "not known");
  if (ablation.has_times()) {
    cells.push_back(milliseconds_text(median(row.milliseconds)));
    cells.push_back(i == 0 ? "" : speedup_text(ablation.rows[i - 1], row));
    cells.push_back(i == 0 ? "" : speedup_text(ablation.rows[0], row));
  }
  cells.push_back(number_text(row.error.max_abs, 2));
  cells.push_back(number_text(row.error.relative, 2));
  return cells;
}

std::string rows_text(const Ablation& ablation) {
  Rows rows = {{"added", "steps"}};
  if (ablation.is_for_gpu) rows[0].emplace_back("launches");
  rows[0].insert(rows[0].end(), {"bytes moved", "activations"});
  if (ablation.has_times()) rows[0].insert(rows[0].end(), {"latency", "gain", "in all"});
  rows[0].insert(rows[0].end(), {"error", "relative"});
  for (size_t i = 0; i < ablation.rows.size(); ++i) rows.push_back(cells_of(ablation, i));
  std::vector<bool> right(rows[0].size(), true);
  right[0] = false;
  return table_text(rows, right);
}

std::string total_text(const Ablation& ablation) {
  if (!ablation.has_times())
    return "the device has no times: only steps, bytes and differences are right\n";
  const double first = median(ablation.rows.front().milliseconds);
  const double last = median(ablation.rows.back().milliseconds);
  return fmt::format("{} of {} saved, {} as fast\n", milliseconds_text(first - last),
                     milliseconds_text(first),
                     speedup_text(ablation.rows.front(), ablation.rows.back()));
}

Json row_json(const Ablation& ablation, size_t i) {
  const AblationRow& row = ablation.rows[i];
  const auto speedup_over = [&](const AblationRow& other) -> Json {
    if (!ablation.has_times()) return nullptr;
    return median(other.milliseconds) / median(row.milliseconds);
  };
  const auto noise_beside = [&](const AblationRow& other) -> Json {
    if (i == 0 || !ablation.has_times()) return nullptr;
    return is_within_noise(other, row);
  };
  const AblationRow& last = ablation.rows[i == 0 ? 0 : i - 1];
  return {{"name", row.name},
          {"passes", row.passes},
          {"rewrites", row.rewrites},
          {"steps", row.steps},
          {"launches", ablation.is_for_gpu ? Json(row.launches) : Json(nullptr)},
          {"moved_bytes", row.moved_bytes},
          {"activation_bytes", row.activation_bytes ? Json(*row.activation_bytes) : Json(nullptr)},
          {"runs", row.milliseconds.size()},
          {"latency_milliseconds",
           row.milliseconds.empty() ? Json(nullptr) : latency_json(latency_of(row.milliseconds))},
          {"round_medians", row.round_medians},
          {"within_noise", noise_beside(last)},
          {"within_noise_in_all", noise_beside(ablation.rows[0])},
          {"speedup_over_last", speedup_over(last)},
          {"speedup_over_first", speedup_over(ablation.rows[0])},
          {"max_abs_error", row.error.max_abs},
          {"relative_error", row.error.relative},
          {"why_no_error", row.error.why.empty() ? Json(nullptr) : Json(row.error.why)},
          {"build_milliseconds", row.build_milliseconds}};
}

std::string others_text(const Ablation& ablation) {
  if (ablation.counts_waiting) return load_text(*ablation.load);
  return fmt::format(
      "other processes used {:.2f} of {}; waiting for a core, {:.1f} % of the time, does not count",
      ablation.load->other_cores, count_text(static_cast<uint64_t>(ablation.load->cores), "core"),
      100 * ablation.load->waited_share);
}

}  // namespace

bool is_within_noise(const AblationRow& a, const AblationRow& b) {
  // That all of four numbers exceed four others by chance has a probability of 3 %.
  constexpr size_t kFewestRounds = 4;
  // Contexts of one plan differ by up to 1.5 %, since their memory lies elsewhere.
  constexpr double kLeastGain = 0.02;
  if (std::min(a.round_medians.size(), b.round_medians.size()) < kFewestRounds) return true;
  const auto [least_a, most_a] = std::ranges::minmax(a.round_medians);
  const auto [least_b, most_b] = std::ranges::minmax(b.round_medians);
  if (least_a <= most_b && least_b <= most_a) return true;
  const auto [fast, slow] = std::minmax({median(a.milliseconds), median(b.milliseconds)});
  return slow / fast - 1 < kLeastGain;
}

std::string ablation_text(const Ablation& ablation) {
  const auto line = [](std::string_view name, const std::string& text) {
    return fmt::format("{:<11} {}\n", name, printable(text));
  };
  std::string text = line("model", fmt::format("{} for {}", ablation.file, ablation.target));
  text +=
      line("machine", fmt::format("{}, at most {}", ablation.machine,
                                  count_text(static_cast<uint64_t>(ablation.threads), "thread")));
  for (const std::string& input : ablation.inputs) text += line("input", input);
  text += line("last row", "anneal build " + ablation.file + ablation.flags);
  text += "\n" + rows_text(ablation) + "\n" + total_text(ablation);
  if (ablation.load) text += others_text(ablation) + "\n";
  if (ablation.has_bodies)
    text += "the number of steps does not count those in bodies of control flow\n";
  for (const AblationRow& row : ablation.rows)
    if (!row.error.why.empty()) text += printable(row.name + ": " + row.error.why) + "\n";
  for (const auto& [name, why] : ablation.left_out)
    text += printable(fmt::format("left out: {}: {}", name, why)) + "\n";
  return text;
}

Json ablation_json(const Ablation& ablation) {
  Json json = {{"anneal", version()},       {"machine", ablation.machine},
               {"file", ablation.file},     {"target", ablation.target},
               {"inputs", ablation.inputs}, {"threads", ablation.threads},
               {"rounds", ablation.rounds}, {"flags_of_last_row", ablation.flags}};
  json["rows"] = Json::array();
  for (size_t i = 0; i < ablation.rows.size(); ++i) json["rows"].push_back(row_json(ablation, i));
  json["left_out"] = Json::array();
  for (const auto& [name, why] : ablation.left_out)
    json["left_out"].push_back({{"name", name}, {"why", why}});
  json["machine_load"] = ablation.load ? load_json(*ablation.load) : Json(nullptr);
  return json;
}

}  // namespace anneal
