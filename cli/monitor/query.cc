#include "anneal/cli/monitor/query.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "anneal/cli/flags/suggest.h"
#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

// What a line is about. process: null in lines of cards.
struct QueryRow {
  const MonitorSample& sample;
  const CardSample& card;
  const ProcessSample* process;
};
using CellValue = std::optional<std::string>;  // without its unit; nullopt: not known

struct QueryField {
  std::string_view name, other_name;
  std::string_view title;  // in the header; empty: the name
  std::string_view unit;
  CellValue (*value)(const QueryRow&);
};

template <class Number>
CellValue value_text(const std::optional<Number>& number) {
  return number ? CellValue(fmt::format("{}", *number)) : std::nullopt;
}
CellValue value_text(const std::string& known) {
  return known.empty() ? std::nullopt : CellValue(known);
}
CellValue mebibytes(const std::optional<uint64_t>& bytes) {
  return bytes ? CellValue(fmt::format("{}", *bytes >> 20)) : std::nullopt;
}
CellValue watts(const std::optional<unsigned>& milliwatts) {
  return milliwatts ? CellValue(fmt::format("{:.2f}", *milliwatts / 1000.0)) : std::nullopt;
}
CellValue local_time(const QueryRow& row) {
  const auto since = row.sample.time.time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since);
  const std::time_t time = std::chrono::system_clock::to_time_t(row.sample.time);
  return fmt::format("{:%Y/%m/%d %H:%M:%S}.{:03}", fmt::localtime(time),
                     milliseconds.count() % 1000);
}

constexpr QueryField kCardFields[] = {
    {"timestamp", "", "", "", local_time},
    {"index", "", "", "", [](const QueryRow& row) { return value_text(row.card.index); }},
    {"name", "gpu_name", "", "",
     [](const QueryRow& row) { return value_text(row.card.state.name); }},
    {"uuid", "gpu_uuid", "", "", [](const QueryRow& row) { return value_text(row.card.uuid); }},
    {"pci.bus_id", "gpu_bus_id", "", "",
     [](const QueryRow& row) { return value_text(row.card.state.bus_id); }},
    {"driver_version", "", "", "",
     [](const QueryRow& row) { return value_text(row.sample.driver_version); }},
    {"utilization.gpu", "", "", "%",
     [](const QueryRow& row) { return value_text(row.card.state.busy_percent); }},
    {"utilization.memory", "", "", "%",
     [](const QueryRow& row) { return value_text(row.card.state.memory_busy_percent); }},
    {"memory.total", "", "", "MiB",
     [](const QueryRow& row) { return mebibytes(row.card.state.memory_bytes); }},
    {"memory.used", "", "", "MiB",
     [](const QueryRow& row) { return mebibytes(row.card.state.used_bytes); }},
    {"power.draw", "", "", "W",
     [](const QueryRow& row) { return watts(row.card.state.milliwatts); }},
    {"power.limit", "", "", "W",
     [](const QueryRow& row) { return watts(row.card.limit_milliwatts); }},
    {"enforced.power.limit", "", "", "W",
     [](const QueryRow& row) { return watts(row.card.enforced_milliwatts); }},
    {"temperature.gpu", "", "", "",
     [](const QueryRow& row) { return value_text(row.card.state.celsius); }},
    {"fan.speed", "", "", "%",
     [](const QueryRow& row) { return value_text(row.card.fan_percent); }},
    {"pstate", "", "", "",
     [](const QueryRow& row) {
       const auto& state = row.card.performance_state;
       return state ? CellValue(fmt::format("P{}", *state)) : std::nullopt;
     }},
    {"clocks.gr", "clocks.current.graphics", "clocks.current.graphics", "MHz",
     [](const QueryRow& row) { return value_text(row.card.graphics_clock_mhz); }},
    {"clocks.sm", "clocks.current.sm", "clocks.current.sm", "MHz",
     [](const QueryRow& row) { return value_text(row.card.state.clock_mhz); }},
    {"clocks.mem", "clocks.current.memory", "clocks.current.memory", "MHz",
     [](const QueryRow& row) { return value_text(row.card.state.memory_clock_mhz); }},
    {"utilization.cpu", "", "", "%",
     [](const QueryRow& row) {
       const auto& busy = row.sample.machine.busy_percent;
       return busy ? CellValue(fmt::format("{:.1f}", *busy)) : std::nullopt;
     }},
    {"memory.cpu.total", "", "", "MiB",
     [](const QueryRow& row) { return mebibytes(row.sample.machine.total_bytes); }},
    {"memory.cpu.used", "", "", "MiB",
     [](const QueryRow& row) { return mebibytes(row.sample.machine.used_bytes); }},
};
constexpr std::string_view kUsualCardFields =
    "timestamp,index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu,"
    "fan.speed,pstate,clocks.sm,clocks.mem,utilization.cpu,memory.cpu.used";

constexpr QueryField kProcessFields[] = {
    {"timestamp", "", "", "", local_time},
    {"index", "gpu_index", "", "", [](const QueryRow& row) { return value_text(row.card.index); }},
    {"gpu_name", "", "", "", [](const QueryRow& row) { return value_text(row.card.state.name); }},
    {"gpu_uuid", "uuid", "", "", [](const QueryRow& row) { return value_text(row.card.uuid); }},
    {"gpu_bus_id", "pci.bus_id", "", "",
     [](const QueryRow& row) { return value_text(row.card.state.bus_id); }},
    {"pid", "", "", "",
     [](const QueryRow& row) { return CellValue(fmt::format("{}", row.process->pid)); }},
    {"process_name", "name", "", "",
     [](const QueryRow& row) { return value_text(row.process->name); }},
    {"used_gpu_memory", "used_memory", "", "MiB",
     [](const QueryRow& row) { return mebibytes(row.process->used_bytes); }},
    {"held", "", "", "", [](const QueryRow& row) { return value_text(row.process->held); }},
};
constexpr std::string_view kUsualProcessFields =
    "timestamp,index,pid,process_name,used_gpu_memory,held";

std::span<const QueryField> fields_of(MonitorRows rows) {
  if (rows == MonitorRows::kProcesses) return kProcessFields;
  return kCardFields;
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> words;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    std::string_view word = text.substr(from, comma - from);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    words.emplace_back(word);
    from = comma + 1;
  }
  return words;
}

size_t find_field(const std::string& name, MonitorRows rows) {
  const std::span<const QueryField> fields = fields_of(rows);
  std::vector<std::string> names;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (name == fields[i].name || (!name.empty() && name == fields[i].other_name)) return i;
    names.emplace_back(fields[i].name);
    if (!fields[i].other_name.empty()) names.emplace_back(fields[i].other_name);
  }
  const std::string near = nearest(name, names);
  refuse_argument(fmt::format("--query: there is no field \"{}\"{}; the fields {}are {}", name,
                              near.empty() ? "" : fmt::format("; did you mean {}?", near),
                              rows == MonitorRows::kProcesses ? "of --processes " : "",
                              field_names(rows)));
}

// Quoted where a reader of CSV would else take it for several values.
std::string csv_cell(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

CsvForm parse_csv_form(std::string_view text) {
  CsvForm form;
  for (const std::string& word : split_at_commas(text)) {
    if (word == "noheader")
      form.header = false;
    else if (word == "nounits")
      form.units = false;
    else if (word != "csv")
      refuse_argument(fmt::format(
          "--format: \"{}\" is not known; csv, noheader and nounits are, with commas between them",
          word));
  }
  return form;
}

Query::Query(std::string_view fields, MonitorRows rows, CsvForm form) : rows_(rows), form_(form) {
  if (fields.empty())
    fields = rows == MonitorRows::kProcesses ? kUsualProcessFields : kUsualCardFields;
  for (const std::string& name : split_at_commas(fields)) fields_.push_back(find_field(name, rows));
}

std::string Query::header() const {
  if (!form_.header) return {};
  std::vector<std::string> titles;
  for (const size_t i : fields_) {
    const QueryField& field = fields_of(rows_)[i];
    std::string title(field.title.empty() ? field.name : field.title);
    if (!field.unit.empty()) title += fmt::format(" [{}]", field.unit);
    titles.push_back(std::move(title));
  }
  return fmt::format("{}\n", fmt::join(titles, ", "));
}

std::string Query::lines(const MonitorSample& sample) const {
  std::string lines;
  const auto add = [&](const QueryRow& row) {
    std::vector<std::string> cells;
    for (const size_t i : fields_) {
      const QueryField& field = fields_of(rows_)[i];
      CellValue value = field.value(row);
      if (value && form_.units && !field.unit.empty()) *value += fmt::format(" {}", field.unit);
      cells.push_back(value ? csv_cell(*value) : "[N/A]");
    }
    lines += fmt::format("{}\n", fmt::join(cells, ", "));
  };
  if (of_processes()) {
    for (const ProcessSample& process : sample.processes) add({sample, process.card, &process});
    return lines;
  }
  for (const CardSample& card : sample.cards) add({sample, card, nullptr});
  if (sample.cards.empty()) add({sample, CardSample{}, nullptr});
  return lines;
}

std::string field_names(MonitorRows rows) {
  std::vector<std::string_view> names;
  for (const QueryField& field : fields_of(rows)) names.push_back(field.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace anneal
