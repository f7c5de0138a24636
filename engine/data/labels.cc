#include "anneal/engine/data/labels.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/file.h"
#include "anneal/core/refuse.h"
#include "anneal/engine/data/csv.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/data/sample_file.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;

int64_t with_offset(int64_t label, const DataFormat& format, std::string_view where) {
  int64_t sum = 0;
  if (__builtin_add_overflow(label, format.label_offset, &sum) || sum < 0)
    refuse_argument(fmt::format("{}: label {} and the offset {} give no class", where, label,
                                format.label_offset));
  return sum;
}

int64_t label_number(const std::string& text, std::string_view where) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end)
    refuse_argument(fmt::format("{}: \"{}\" is no whole number", where, text));
  return value;
}

// Where the rows say which sample they speak of ("row"), they are put in that order.
std::vector<size_t> order_of(const Csv& csv) {
  std::vector<size_t> order(csv.rows.size(), csv.rows.size());
  const auto column = csv.column("row");
  for (size_t i = 0; i < order.size(); ++i) {
    const auto number =
        column ? static_cast<size_t>(label_number(csv.rows[i][*column], "column row")) : i;
    if (number >= order.size() || order[number] != order.size())
      refuse_argument(fmt::format("the column \"row\" does not count the {} samples from 0: see {}",
                                  order.size(), number));
    order[number] = i;
  }
  return order;
}

void read_table(const Csv& csv, const DataFormat& format, Labels& labels) {
  const auto label = csv.column(format.label_column);
  if (!label)
    refuse_argument(
        fmt::format("it has no column \"{}\", only {}; name the column of the classes with "
                    "label_column, or say labels none",
                    format.label_column, fmt::format("{}", fmt::join(csv.header, ", "))));
  const auto file = csv.column(format.file_column);
  if (!file && format.file_column != DataFormat().file_column)
    refuse_argument(fmt::format("it has no column \"{}\"", format.file_column));
  for (const size_t i : order_of(csv)) {
    const auto& row = csv.rows[i];
    const std::string where = fmt::format("row {}", i + 1);
    if (file) labels.files.push_back(row[*file]);
    labels.values.push_back(with_offset(label_number(row[*label], where), format, where));
  }
}

}  // namespace

std::vector<int64_t> labels_of(const Tensor& array, const DataFormat& format,
                               std::string_view what) {
  if (!is_integer(array.dtype()) || array.dims().rank() != 1)
    refuse_argument(fmt::format("{}: {}{} are no labels, which are integers along one axis", what,
                                to_string(array.dtype()), to_string(array.dims())));
  std::vector<int64_t> values;
  const size_t element = size_of(array.dtype());
  for (size_t at = 0; at < array.bytes().size(); at += element) {
    const double value = read_element(array.dtype(), array.bytes().data() + at);
    if (!(value > -0x1p53 && value < 0x1p53))
      refuse_argument(fmt::format("{}: a label of {}", what, value));
    values.push_back(with_offset(static_cast<int64_t>(value), format, what));
  }
  return values;
}

Labels find_labels(const std::string& folder, const DataFormat& format) {
  Labels labels;
  if (format.labels == "none") return labels;
  std::error_code ignored;
  if (format.labels.empty()) {
    labels.path = (fs::path(folder) / "labels.csv").string();
    if (!fs::exists(labels.path, ignored)) return {};
  } else {
    // From where the command stands, or else within the data.
    labels.path = format.labels;
    if (!fs::exists(labels.path, ignored) && fs::exists(fs::path(folder) / labels.path, ignored))
      labels.path = (fs::path(folder) / labels.path).string();
  }
  if (!labels.path.ends_with(".csv")) {
    labels.values = labels_of(read_sample(labels.path, {}), format, labels.path);
    return labels;
  }
  const FileBytes file = read_file(labels.path);
  with_context(
      [&] { return fmt::format("while reading {}", labels.path); },
      [&] {
        read_table(parse_csv({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}),
                   format, labels);
      });
  return labels;
}

void check_label_count(const Labels& labels, int64_t samples) {
  const auto count = static_cast<int64_t>(labels.values.size());
  if (!labels.path.empty() && count != samples)
    refuse_argument(
        fmt::format("{} has {} labels, the data {} samples; say which labels belong to it with "
                    "labels FILE, or labels none",
                    labels.path, count, samples));
}

}  // namespace anneal
