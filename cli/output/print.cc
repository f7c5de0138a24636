#include "anneal/cli/output/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/printable.h"

namespace anneal {

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string milliseconds_text(double value) {
  if (value >= 999.5) return fmt::format("{:.3g} s", value / 1000);
  if (value < 0.0995 && value > 0) return fmt::format("{:.3g} us", value * 1000);
  return fmt::format("{:.3g} ms", value);
}

std::string count_text(uint64_t count, std::string_view one) {
  if (count == 1) return fmt::format("1 {}", one);
  if (one.ends_with("is")) return fmt::format("{} {}es", count, one.substr(0, one.size() - 2));
  return fmt::format("{} {}{}", count, one, one.ends_with("ch") ? "es" : "s");
}

std::string rate_text(double per_second) {
  if (per_second < 99.95) return number_text(per_second);
  std::string digits = fmt::format("{:.0f}", per_second);
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string number_text(double value, int digits) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}g}", value, digits);
}

std::string one_line(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') {
      line += text[i];
    } else if (!line.empty() && i + 1 < text.size()) {
      line += line.back() == ':' ? " " : "; ";
      while (i + 1 < text.size() && text[i + 1] == ' ') ++i;
    }
  }
  return line;
}

std::string table_text(Rows rows, const std::vector<bool>& right) {
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<size_t> widths(right.size(), 0);
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      line += column > 0 ? "  " : "";
      line += right[column] ? fmt::format("{:>{}}", row[column], widths[column])
                            : fmt::format("{:<{}}", row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

double median(std::vector<double> values) {
  check(!values.empty(), "a median of something");
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double percentile(std::vector<double> values, double share) {
  check(!values.empty(), "a percentile of something");
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

}  // namespace anneal
