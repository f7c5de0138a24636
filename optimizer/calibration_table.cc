#include "anneal/optimizer/calibration_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr std::string_view kFirstLine = "anneal calibration 1";
constexpr std::string_view kLargest = "largest", kMse = "mse";  // scales of weights

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
  std::string_view next() const { return rest_.substr(0, rest_.find_first_of(" \t")); }

  std::string_view word() {
    const std::string_view found = next();
    if (found.empty()) refuse("it ends too soon");
    rest_.remove_prefix(found.size());
    skip_spaces();
    return found;
  }

  float finite(std::string_view what) {
    const auto value = number<float>();
    if (!std::isfinite(value)) refuse(fmt::format("{} must be finite", what));
    return value;
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
    if (done.ec == std::errc::not_enough_memory) fail_out_of_memory();
    if (done.ec != std::errc() || done.ptr != text.data() + text.size())
      refuse(fmt::format("\"{}\" is not a number that is allowed here", text));
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
        refuse("two hexadecimal digits must follow \\x");
      name += static_cast<char>(code);
      at += 2;
    }
    if (at >= rest_.size()) refuse("the quote of the name is not closed");
    rest_.remove_prefix(at + 1);
    skip_spaces();
    return name;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number_, why));
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
  for (float* number : {&range.min, &range.max, &range.seen_min, &range.seen_max})
    *number = words.finite("a range");
  if (range.min > range.max)
    words.refuse(fmt::format("the range begins at {} and ends at {}", range.min, range.max));
  if (range.seen_min > range.seen_max)
    words.refuse(
        fmt::format("the extremes begin at {} and end at {}", range.seen_min, range.seen_max));
  range.method = words.word();
  const std::string name = words.name();
  if (!table.tensors.emplace(name, range).second)
    words.refuse(fmt::format("tensor \"{}\" occurs twice", name));
}

void parse_layer(Words& words, CalibrationTable& table) {
  const std::string name = words.name();
  const std::string_view scales = words.word();
  if (scales != kLargest && scales != kMse)
    words.refuse(fmt::format("scales of weights are {} or {}, not \"{}\"", kLargest, kMse, scales));
  LayerQuantization layer{.fits_weights = scales == kMse};
  if (!words.at_end()) {
    layer.error_by_ranges = words.finite("an error");
    layer.error = words.finite("an error");
  }
  if (!table.layers.emplace(name, layer).second)
    words.refuse(fmt::format("layer \"{}\" occurs twice", name));
}

void parse_bias(Words& words, CalibrationTable& table) {
  const std::string name = words.name();
  std::vector<float> bias;
  do {
    bias.push_back(words.finite("a bias"));
  } while (!words.at_end());
  if (!table.biases.emplace(name, std::move(bias)).second)
    words.refuse(fmt::format("the bias of layer \"{}\" occurs twice", name));
}

void parse_exponents(Words& words, CalibrationTable& table) {
  const std::string name = words.name();
  std::vector<int> exponents;
  do {
    const int exponent = words.number<int>();
    constexpr int kMost = CalibrationTable::kMostExponent;
    if (exponent < -kMost || exponent > kMost)
      words.refuse(fmt::format("exponents are from -{0} to {0}", kMost));
    exponents.push_back(exponent);
  } while (!words.at_end());
  if (!table.exponents.emplace(name, std::move(exponents)).second)
    words.refuse(fmt::format("tensor \"{}\" is equalized twice", name));
}

void parse_model(Words& words, CalibrationTable& table) {
  table.model = words.name();
  table.fingerprint = words.number<uint64_t>(16);
}

void parse_samples(Words& words, CalibrationTable& table) {
  table.samples = words.number<int64_t>();
  if (table.samples < 0) words.refuse("fewer than 0 samples");
}

void parse_zero_points(Words& words, CalibrationTable& table) {
  if (words.number<int>() != 0) words.refuse("zero points are to be 0, or the line is left out");
  table.symmetric = true;
}

struct Line {
  std::string_view first_word;
  void (*parse)(Words&, CalibrationTable&);  // what follows it
};
constexpr std::array<Line, 6> kLines = {{{"model", parse_model},
                                         {"samples", parse_samples},
                                         {"zero-points", parse_zero_points},
                                         {"layer", parse_layer},
                                         {"bias", parse_bias},
                                         {"equalize", parse_exponents}}};

void parse_line(Words& words, CalibrationTable& table) {
  const auto known = std::ranges::find(kLines, words.next(), &Line::first_word);
  if (known == kLines.end()) {
    parse_tensor(words, table);
  } else {
    words.word();
    known->parse(words, table);
  }
  if (!words.at_end()) words.refuse("the line has too many fields");
}

// A section's heading, if there is anything below it.
void add_heading(std::string& text, bool any, std::string_view heading) {
  if (any) text += fmt::format("# {}\n", heading);
}

void add_layers(const CalibrationTable& table, std::string& text) {
  add_heading(
      text, !table.layers.empty(),
      "layer  name  scales of its weights  error by ranges alone  error as it is quantized");
  for (const auto& [name, layer] : table.layers)
    text += fmt::format("layer {} {} {} {}\n", quoted(name), layer.fits_weights ? kMse : kLargest,
                        layer.error_by_ranges, layer.error);
  add_heading(text, !table.biases.empty(), "bias  layer  added to each channel of its results");
  for (const auto& [name, bias] : table.biases)
    text += fmt::format("bias {} {}\n", quoted(name), fmt::join(bias, " "));
  add_heading(text, !table.exponents.empty(),
              "equalize  tensor  the power of two that each of its channels is multiplied by");
  for (const auto& [name, exponents] : table.exponents)
    text += fmt::format("equalize {} {}\n", quoted(name), fmt::join(exponents, " "));
}

// A method that an application names, as one word of a line.
std::string one_word(std::string method) {
  for (char& c : method)
    if (static_cast<unsigned char>(c) <= ' ') c = '-';
  return method.empty() ? "given" : method;
}

}  // namespace

std::string to_string(const CalibrationTable& table) {
  return at_entry([&] {
    std::string text = fmt::format("{}\nmodel {} {:016x}\nsamples {}\n", kFirstLine,
                                   quoted(table.model), table.fingerprint, table.samples);
    if (table.symmetric) text += "zero-points 0\n";
    text += "# min  max  smallest seen  largest seen  method  tensor\n";
    for (const auto& [name, range] : table.tensors)
      text += fmt::format("{} {} {} {} {} {}\n", range.min, range.max, range.seen_min,
                          range.seen_max, one_word(range.method), quoted(name));
    add_layers(table, text);
    return text;
  });
}

CalibrationTable parse_calibration_table(std::string_view text) {
  return at_entry([&] {
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
        parse_line(words, table);
      } else if (line == kFirstLine) {
        begun = true;
      } else {
        words.refuse(fmt::format("no calibration table: \"{}\" is expected first", kFirstLine));
      }
    }
    if (!begun) fail(ErrorCode::kInvalidArgument, "no calibration table: it is empty");
    return table;
  });
}

}  // namespace anneal
