#include "anneal/optimizer/calibration_table.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "anneal/core/error.h"

namespace anneal {
namespace {

constexpr std::string_view kFirstLine = "anneal calibration 1";

// '"' and '\' get a '\' before them; control characters are \xNN.
std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      text += c;
  }
  return text + '"';
}

// The words of one line.
class Words {
 public:
  Words(std::string_view line, int number) : rest_(line), number_(number) { skip_spaces(); }

  bool at_end() const { return rest_.empty(); }

  std::string_view word() {
    const size_t size = rest_.find_first_of(" \t");
    const std::string_view found = rest_.substr(0, size);
    if (found.empty()) refuse("it ends too soon");
    rest_.remove_prefix(found.size());
    skip_spaces();
    return found;
  }

  template <class T>
  T number(int base = 10) {
    const std::string_view text = word();
    T value{};
    std::from_chars_result done{};
    if constexpr (std::is_floating_point_v<T>)
      done = std::from_chars(text.data(), text.data() + text.size(), value);
    else
      done = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (done.ec != std::errc() || done.ptr != text.data() + text.size())
      refuse(fmt::format("\"{}\" is not a number that is wanted here", text));
    return value;
  }

  std::string name() {
    if (rest_.empty() || rest_[0] != '"') refuse("a name in quotes is expected");
    std::string name;
    size_t at = 1;
    for (; at < rest_.size() && rest_[at] != '"'; ++at) {
      if (rest_[at] != '\\') {
        name += rest_[at];
        continue;
      }
      if (++at == rest_.size()) break;
      if (rest_[at] != 'x') {
        name += rest_[at];
        continue;
      }
      unsigned code = 0;
      const std::string_view digits = rest_.substr(at + 1, 2);
      const auto done = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (digits.size() != 2 || done.ptr != digits.data() + 2)
        refuse("\\x wants two hexadecimal digits behind it");
      name += static_cast<char>(code);
      at += 2;
    }
    if (at >= rest_.size()) refuse("the quote of the name is not closed");
    rest_.remove_prefix(at + 1);
    skip_spaces();
    return name;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail(Code::kInvalidArgument, fmt::format("line {}: {}", number_, why));
  }

 private:
  void skip_spaces() {
    const size_t first = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }

  std::string_view rest_;
  int number_;
};

void parse_tensor(Words& words, CalibrationTable& table) {
  TensorRange range;
  for (float* number : {&range.min, &range.max, &range.seen_min, &range.seen_max}) {
    *number = words.number<float>();
    if (!std::isfinite(*number)) words.refuse("a range must be finite");
  }
  if (range.min > range.max)
    words.refuse(fmt::format("the range begins at {} and ends at {}", range.min, range.max));
  if (range.seen_min > range.seen_max)
    words.refuse(
        fmt::format("the extremes begin at {} and end at {}", range.seen_min, range.seen_max));
  range.method = words.word();
  const std::string name = words.name();
  if (!table.tensors.emplace(name, range).second)
    words.refuse(fmt::format("tensor \"{}\" is there twice", name));
}

void parse_line(Words& words, std::string_view line, CalibrationTable& table) {
  if (line.starts_with("model ")) {
    words.word();
    table.model = words.name();
    table.fingerprint = words.number<uint64_t>(16);
  } else if (line.starts_with("samples ")) {
    words.word();
    table.samples = words.number<int64_t>();
    if (table.samples < 0) words.refuse("fewer than 0 samples");
  } else {
    parse_tensor(words, table);
  }
  if (!words.at_end()) words.refuse("there is more than is wanted");
}

}  // namespace

std::string to_text(const CalibrationTable& table) {
  std::string text = fmt::format("{}\nmodel {} {:016x}\nsamples {}\n", kFirstLine,
                                 quoted(table.model), table.fingerprint, table.samples);
  text += "# min  max  smallest seen  largest seen  method  tensor\n";
  for (const auto& [name, range] : table.tensors)
    text += fmt::format("{} {} {} {} {} {}\n", range.min, range.max, range.seen_min, range.seen_max,
                        range.method, quoted(name));
  return text;
}

CalibrationTable parse_calibration_table(std::string_view text) {
  CalibrationTable table;
  bool begun = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    Words words(line, number);
    if (words.at_end() || line.starts_with('#')) continue;
    if (begun) {
      parse_line(words, line, table);
    } else if (line == kFirstLine) {
      begun = true;
    } else {
      words.refuse(fmt::format("no calibration table: \"{}\" is expected first", kFirstLine));
    }
  }
  if (!begun) fail(Code::kInvalidArgument, "no calibration table: it is empty");
  return table;
}

}  // namespace anneal
