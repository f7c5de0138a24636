#include "anneal/cli/output/printable.h"

#include <fmt/format.h>

namespace anneal {

std::string printable(std::string_view text, LineEnds line_ends) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : '\0';
    const bool ends_line =
        byte == '\n' && (line_ends == LineEnds::kKept || (line_ends == LineEnds::kIndented &&
                                                          text.substr(i + 1).starts_with("  ")));
    const bool control_of_utf8 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (control_of_utf8) {
      shown += fmt::format("\\x{:02x}", next);
      ++i;
    } else if ((byte < 0x20 || byte == 0x7f) && !ends_line) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::string quoted(const std::string& text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-./:,=+@%") == std::string::npos)
    return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace anneal
