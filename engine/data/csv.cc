#include "anneal/engine/data/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  // false: at the end.
  bool record(std::vector<std::string>& fields) {
    while (at_ < text_.size() && end_of_line()) {
    }
    if (at_ == text_.size()) return false;
    started_ = line_;
    fields.clear();
    do fields.push_back(field());
    while (comma());
    if (at_ < text_.size() && !end_of_line()) refuse("text follows a quoted field");
    return true;
  }
  int64_t line() const { return started_; }
  [[noreturn]] void refuse(std::string_view why) const {
    fail(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", started_, why));
  }

 private:
  bool comma() {
    if (at_ == text_.size() || text_[at_] != ',') return false;
    ++at_;
    return true;
  }
  bool end_of_line() {
    const std::string_view rest = text_.substr(at_);
    const size_t size = rest.starts_with("\r\n") ? 2 : rest.starts_with('\n') ? 1 : 0;
    at_ += size;
    line_ += size > 0 ? 1 : 0;
    return size > 0;
  }
  std::string field() {
    if (at_ == text_.size() || text_[at_] != '"') {
      const size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
      std::string_view plain = text_.substr(at_, end - at_);
      if (plain.ends_with('\r')) plain.remove_suffix(1);
      at_ += plain.size();
      return std::string(plain);
    }
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') return value;
      }
      value += text_[at_];
    }
    refuse("a quoted field does not end");
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1, started_ = 1;
};

}  // namespace

std::optional<size_t> Csv::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<size_t>(found - header.begin());
}

Csv parse_csv(std::string_view text) {
  Parser parser(text);
  Csv csv;
  if (!parser.record(csv.header))
    fail(ErrorCode::kInvalidArgument, "it is empty; its first line names the columns");
  for (std::vector<std::string> fields; parser.record(fields);) {
    if (fields.size() != csv.header.size())
      parser.refuse(
          fmt::format("{} fields under {} names of columns", fields.size(), csv.header.size()));
    csv.rows.push_back(std::move(fields));
  }
  return csv;
}

}  // namespace anneal
