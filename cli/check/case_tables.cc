#include "anneal/cli/check/case_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Calls row(fields) for each line that is neither empty nor a comment; errors get the line.
void for_each_row(std::string_view text, std::string_view what,
                  const std::function<void(const std::vector<std::string_view>&)>& row) {
  const auto lines = split(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty() || lines[i][0] == '#') continue;
    with_context([&] { return fmt::format("{}, line {}", what, i + 1); },
                 [&] { row(split(lines[i], '\t')); });
  }
}

std::optional<double> number(std::string_view text, std::string_view column) {
  if (text.empty() || text == "-") return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} \"{}\" is not a number of 0 or more", column, text));
  return value;
}

// The field of a column, empty if the row is too short for it.
std::string_view field(const std::vector<std::string_view>& row, size_t column) {
  return column < row.size() ? row[column] : std::string_view();
}

}  // namespace

std::vector<ToleranceRow> parse_tolerances(std::string_view text, std::string_view what) {
  std::vector<std::string_view> columns = {"case", "atol", "rtol", "max_differ"};
  std::vector<ToleranceRow> rows;
  bool first = true;
  for_each_row(text, what, [&](const std::vector<std::string_view>& fields) {
    const bool names_columns =
        first && std::find(fields.begin(), fields.end(), "case") != fields.end();
    first = false;
    if (names_columns) {
      columns = fields;
      return;
    }
    if (fields.size() == 1 && columns.size() > 1)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" has no tolerance; write the name and the numbers with tabs between",
                       fields[0]));
    if (fields.size() > columns.size())
      fail(ErrorCode::kInvalidArgument, "more fields than columns");
    ToleranceRow row;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string_view value = field(fields, i);
      if (columns[i] == "case") row.name = value;
      if (columns[i] == "atol") row.atol = number(value, "atol");
      if (columns[i] == "rtol") row.rtol = number(value, "rtol");
      if (columns[i] == "max_differ") row.max_differ = number(value, "max_differ");
    }
    if (row.name.empty()) fail(ErrorCode::kInvalidArgument, "no case is named");
    if (row.max_differ && *row.max_differ > 1)
      fail(ErrorCode::kInvalidArgument, "max_differ is a share of the elements, from 0 to 1");
    rows.push_back(std::move(row));
  });
  return rows;
}

std::vector<NoiseRow> parse_reference_noise(std::string_view text, std::string_view what) {
  std::optional<size_t> name_column, noise_column;
  std::vector<NoiseRow> rows;
  for_each_row(text, what, [&](const std::vector<std::string_view>& fields) {
    if (!name_column) {
      const auto column = [&](std::string_view wanted) {
        const auto found = std::find(fields.begin(), fields.end(), wanted);
        if (found == fields.end())
          fail(ErrorCode::kInvalidArgument, fmt::format("there is no column \"{}\"", wanted));
        return static_cast<size_t>(found - fields.begin());
      };
      name_column = column("model");
      noise_column = column("ref_noise_maxabs");
      return;
    }
    const auto noise = number(field(fields, *noise_column), "ref_noise_maxabs");
    rows.push_back({std::string(field(fields, *name_column)), noise.value_or(0)});
  });
  return rows;
}

std::vector<KnownFailure> parse_known_failures(std::string_view text, std::string_view what) {
  std::vector<KnownFailure> failures;
  for_each_row(text, what, [&](const std::vector<std::string_view>& fields) {
    std::string_view case_name = fields[0], reason = field(fields, 1);
    const size_t blank = case_name.find(' ');
    if (fields.size() == 1 && blank != case_name.npos) {
      reason = trimmed(case_name.substr(blank));
      case_name = case_name.substr(0, blank);
    }
    if (reason.empty())
      fail(ErrorCode::kInvalidArgument,
           fmt::format("\"{}\" has no reason; write the name, a tab and why it fails", case_name));
    failures.push_back({std::string(case_name), std::string(reason)});
  });
  return failures;
}

bool names_case(std::string_view row, std::string_view name) {
  if (row == name) return true;
  const std::string_view longer = row.size() > name.size() ? row : name;
  const std::string_view shorter = row.size() > name.size() ? name : row;
  return !shorter.empty() && longer.size() > shorter.size() && longer.ends_with(shorter) &&
         longer[longer.size() - shorter.size() - 1] == '/';
}

}  // namespace anneal
