#include "anneal/engine/tune/frontier/svg.h"

#include <fmt/format.h>

#include <cstdint>

namespace anneal {
namespace {

struct Character {
  uint32_t code = 0xFFFD;
  size_t bytes = 1;
};
// The first of the text, in UTF-8; what is none, or nothing that XML may have, is U+FFFD.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes == 0 || lead > 0xF4 || bytes > text.size()) return {};
  uint32_t code = bytes == 1 ? lead : lead & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0x20, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF ||
      code == 0xFFFE || code == 0xFFFF)
    return {0xFFFD, code < 0x20 ? size_t{1} : bytes};
  return {code, bytes};
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_character(text).bytes);
  return count;
}

}  // namespace

std::string svg_shortened(std::string_view text, size_t longest) {
  if (characters(text) <= longest) return std::string(text);
  size_t end = 0;
  for (size_t i = 0; i + 1 < longest; ++i) end += first_character(text.substr(end)).bytes;
  return std::string(text.substr(0, end)) + "\u2026";
}

std::string svg_escaped(std::string_view text) {
  std::string xml;
  while (!text.empty()) {
    const Character character = first_character(text);
    switch (character.code) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      case 0xFFFD:
        xml += "\uFFFD";
        break;
      default:
        xml += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return xml;
}

double svg_text_width(std::string_view text, double size) {
  return 0.55 * size * static_cast<double>(characters(text));
}

std::string svg_start(double width, double height, std::string_view title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"-apple-system, Segoe UI, Helvetica, Arial, "
      "DejaVu Sans, sans-serif\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" rx=\"8\" fill=\"#fbfbfa\"/>\n",
      width, height, svg_escaped(title));
}

std::string svg_text(double x, double y, std::string_view words, const SvgText& style) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\" "
      "font-weight=\"{}\"{}>{}</text>\n",
      x, y, style.size, style.colour, style.anchor, style.weight,
      style.has_halo ? " paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"3.5\" "
                       "stroke-linejoin=\"round\" stroke-opacity=\"0.85\""
                     : "",
      svg_escaped(words));
}

std::string svg_line(const SvgLine& line, const char* colour, double width, std::string_view more) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"{}\"{}/>\n",
      line.x1, line.y1, line.x2, line.y2, colour, width, more);
}

}  // namespace anneal
