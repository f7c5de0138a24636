// A roofline as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/roofline/advice.h"
#include "anneal/cli/roofline/roofline.h"

namespace anneal {
namespace {

// Four digits or more, without an exponent.
std::string without_exponent(double number) {
  return number >= 1000 ? fmt::format("{:.0f}", number) : number_text(number, 4);
}

std::string rate_list(const RooflineCeilings& ceilings) {
  std::string text;
  for (const ProductRate& rate : ceilings.rates)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(rate.type),
                        without_exponent(rate.per_second / 1e9));
  return text + " Gop/s";
}

std::string level_list(const RooflineCeilings& ceilings) {
  std::string text;
  for (auto level = ceilings.levels.rbegin(); level != ceilings.levels.rend(); ++level) {
    text += fmt::format("{}{} {} GB/s", text.empty() ? "" : ", ", level->name,
                        without_exponent(level->bandwidth() / 1e9));
    if (level->copy != level->read)
      text += fmt::format(" (copy {})", without_exponent(level->copy / 1e9));
  }
  return text;
}

std::string ceilings_text(const Roofline& roofline) {
  const auto line = [](std::string_view name, const std::string& text) {
    return fmt::format("{:<11} {}\n", name, printable(text));
  };
  if (!roofline.ceilings)
    return line("ceilings",
                fmt::format("none: this CPU does not have what {} needs", roofline.plan.target));
  const RooflineCeilings& ceilings = *roofline.ceilings;
  std::string text =
      ceilings.date.empty()
          ? line("ceilings", fmt::format("{}, published figures", ceilings.device))
          : line("ceilings",
                 fmt::format("{}, {} instructions, {}, measured {}", ceilings.device, ceilings.isa,
                             count_text(static_cast<uint64_t>(ceilings.threads), "thread"),
                             ceilings.date));
  text += line("", rate_list(ceilings));
  text += line("", level_list(ceilings));
  if (ceilings.was_busy)
    text += line("", "BUSY: other processes used the cores; the next roofline measures again");
  return text;
}

// The share of the time for each bound, the largest first.
std::string parts_text(const Roofline& roofline) {
  std::map<std::string, double> shares;
  for (const RooflineRow& row : roofline.rows) shares[row.bound_text] += roofline.share_of(row);
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [bound, share] : shares) order.emplace_back(-share, bound);
  std::ranges::sort(order);
  std::string text;
  for (const auto& [share, bound] : order)
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ",
                        bound == "-" ? "not known" : bound, -100 * share);
  return text;
}

// Those in front of the bound.
std::vector<std::string> work_cells(const Roofline& roofline, double time, double operations,
                                    double bytes, double share) {
  std::vector<std::string> cells;
  if (roofline.is_measured)
    cells = {fmt::format("{:.1f}", time), fmt::format("{:.1f}", 100 * share)};
  cells.push_back(without_exponent(operations / 1e6));
  cells.push_back(without_exponent(bytes / 1e3));
  cells.push_back(bytes > 0 ? number_text(operations / bytes, 3) : "");
  return cells;
}

std::string steps_table(const Roofline& roofline) {
  Rows rows = {{"#", "step", "kernel"}};
  const std::vector<std::string> times = {"us", "%"},
                                 work = {"Mop", "kB", "op/B", "bound", "roof us"};
  if (roofline.is_measured) rows[0].insert(rows[0].end(), times.begin(), times.end());
  rows[0].insert(rows[0].end(), work.begin(), work.end());
  if (roofline.is_measured) rows[0].emplace_back("reached %");
  const auto add = [&](std::vector<std::string> cells, const std::string& bound, double time,
                       double least) {
    cells.push_back(bound);
    cells.push_back(least > 0 ? fmt::format("{:.{}f}", least, least < 10 ? 2 : 1) : "");
    if (roofline.is_measured)
      cells.push_back(least > 0 && time > 0 ? fmt::format("{:.0f}", 100 * least / time) : "");
    rows.back().insert(rows.back().end(), cells.begin(), cells.end());
  };
  std::vector<const RooflineRow*> order;
  for (const RooflineRow& row : roofline.rows) order.push_back(&row);
  std::ranges::stable_sort(order, std::greater(), [&](const RooflineRow* row) {
    return roofline.is_measured ? row->time : row->least_time();
  });
  double operations = 0, bytes = 0, known_time = 0;
  for (const RooflineRow* const row : order) {
    const RooflineStep& step = roofline.step_of(*row);
    rows.push_back({fmt::format("{}", row->step + 1), step.name, step.kernel});
    add(work_cells(roofline, row->time, row->operations, row->bytes, roofline.share_of(*row)),
        row->bound_text, row->time, row->least_time());
    operations += row->operations;
    bytes += row->bytes;
    if (row->bound != Bound::kNotKnown) known_time += row->time;
  }
  rows.push_back({"", "all", ""});
  add(work_cells(roofline, roofline.time(), operations, bytes, 1), "", known_time,
      roofline.least_time());
  std::vector<bool> right(rows[0].size(), true);
  right[1] = right[2] = false;
  right[roofline.is_measured ? 8 : 6] = false;
  return table_text(rows, right);
}

// Why a step may exceed the roof.
std::string winograd_note(const Roofline& roofline) {
  const bool exceeds = std::ranges::any_of(roofline.rows, [&](const RooflineRow& row) {
    return row.time > 0 && row.time < row.least_time() &&
           roofline.step_of(row).kernel.find("winograd") != std::string::npos;
  });
  return exceeds ? "above 100 %: kernels of Winograd's need fewer operations than their layers\n"
                 : "";
}

Json step_json(const Roofline& roofline, const RooflineRow& row) {
  const RooflineStep& step = roofline.step_of(row);
  Json json = {{"step", step.name}, {"kernel", step.kernel}, {"times", row.runs}};
  if (step.is_known) {
    json["type"] = to_string(step.type);
    json["operations"] = row.operations;
    json["product_operations"] = row.runs * step.products;
    json["weight_bytes"] = row.runs * step.weight_bytes;
    json["activation_bytes"] = row.runs * step.activation_bytes;
    json["operations_per_byte"] = row.bytes > 0 ? Json(row.operations / row.bytes) : Json(nullptr);
  }
  if (row.bound != Bound::kNotKnown) {
    json["bound"] = row.bound_text;
    json["roof_microseconds"] = row.least_time();
  }
  if (!roofline.is_measured) return json;
  json["microseconds"] = row.time;
  json["share_of_time"] = roofline.share_of(row);
  if (row.bound != Bound::kNotKnown && row.time > 0)
    json["share_of_roof"] = row.least_time() / row.time;
  return json;
}

}  // namespace

std::string roofline_text(const Roofline& roofline) {
  std::string text = ceilings_text(roofline);
  if (roofline.plan.is_emulated)
    text += fmt::format("{:<11} of this emulated device say nothing of a card's\n", "times");
  text += "\n" + steps_table(roofline);
  if (roofline.ceilings)
    text += fmt::format("\n{}: {}\n",
                        roofline.is_measured ? "bound, of the time" : "bound, of the roof's time",
                        parts_text(roofline));
  text += winograd_note(roofline);
  const std::vector<Advice> advice = advice_of(roofline);
  if (!advice.empty()) text += "\nadvice\n";
  for (const Advice& each : advice)
    text += fmt::format("  {:<6} {}\n", each.kind, printable(each.text));
  return text;
}

std::string planned_roofline_text(const Roofline& roofline, bool is_one_of_several) {
  std::string text =
      fmt::format("{:<11} {}{}\n", "plan", printable(roofline.plan.target),
                  is_one_of_several ? fmt::format(", profile {}", roofline.plan.profile) : "");
  for (const std::string& input : roofline.plan.inputs)
    text += fmt::format("{:<11} {}\n", "input", printable(input));
  return text + roofline_text(roofline);
}

Json roofline_json(const Roofline& roofline) {
  Json json = {{"target", roofline.plan.target}, {"profile", roofline.plan.profile}};
  json["inputs"] = roofline.plan.inputs;
  json["batch"] = roofline.plan.batch > 0 ? Json(roofline.plan.batch) : Json(nullptr);
  json["ceilings"] =
      roofline.ceilings ? Json::parse(ceilings_text_as_json(*roofline.ceilings)) : Json(nullptr);
  json["steps"] = Json::array();
  double operations = 0, bytes = 0;
  for (const RooflineRow& row : roofline.rows) {
    json["steps"].push_back(step_json(roofline, row));
    operations += row.operations;
    bytes += row.bytes;
  }
  json["total"] = {
      {"operations", operations}, {"bytes", bytes}, {"roof_microseconds", roofline.least_time()}};
  if (roofline.is_measured) json["total"]["microseconds"] = roofline.time();
  json["advice"] = Json::array();
  for (const Advice& each : advice_of(roofline)) {
    Json one = {{"kind", each.kind}, {"text", each.text}};
    one.update(each.figures);
    json["advice"].push_back(std::move(one));
  }
  return json;
}

}  // namespace anneal
