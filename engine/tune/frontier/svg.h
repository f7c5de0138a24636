// The parts of an SVG. Text may be any bytes: invalid UTF-8, and characters that XML forbids,
// become U+FFFD.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace anneal {

struct SvgText {
  double size = 12;
  const char* colour = "#24292f";
  const char* anchor = "start";
  const char* weight = "normal";
  bool has_halo = false;  // white around it
};
struct SvgLine {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// The start of a file: its size, fonts, title, and a light ground, so that it is read on any page.
std::string svg_start(double width, double height, std::string_view title);
std::string svg_text(double x, double y, std::string_view words, const SvgText& style = {});
// more: other attributes, " stroke-dasharray=..."
std::string svg_line(const SvgLine& line, const char* colour, double width,
                     std::string_view more = {});
std::string svg_escaped(std::string_view text);
// Replaces characters beyond `longest` by an ellipsis. REQUIRES: longest > 0
std::string svg_shortened(std::string_view text, size_t longest);
// With room to spare, for fonts differ.
double svg_text_width(std::string_view text, double size);

}  // namespace anneal
