#include "anneal/cli/output/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "anneal/cli/output/errors.h"

namespace anneal {

std::vector<std::string> picture_text(std::span<const uint8_t> pixels, int64_t rows,
                                      int64_t columns, int64_t width) {
  check(static_cast<int64_t>(pixels.size()) == rows * columns, "pixels fill the picture");
  constexpr std::string_view kRamp = " .:-=+*#%@";
  const int64_t shrink = std::max<int64_t>(1, (columns + width - 1) / width);
  std::vector<std::string> lines;
  for (int64_t row = 0; row < rows; row += 2 * shrink) {
    std::string line;
    for (int64_t column = 0; column < columns; column += shrink) {
      int64_t sum = 0, covered = 0;
      for (int64_t y = row; y < std::min(row + 2 * shrink, rows); ++y)
        for (int64_t x = column; x < std::min(column + shrink, columns); ++x, ++covered)
          sum += pixels[static_cast<size_t>(y * columns + x)];
      line += kRamp[static_cast<size_t>(sum * static_cast<int64_t>(kRamp.size() - 1) /
                                        (covered * 255))];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string picture_row(const std::vector<std::vector<std::string>>& pictures,
                        const std::vector<std::string>& captions) {
  size_t height = 0, width = 0;
  for (const auto& picture : pictures) {
    height = std::max(height, picture.size());
    for (const std::string& line : picture) width = std::max(width, line.size());
  }
  for (const std::string& caption : captions) width = std::max(width, caption.size());
  std::string text;
  for (size_t line = 0; line <= height; ++line) {
    std::string row;
    for (size_t i = 0; i < pictures.size(); ++i) {
      const std::string_view cell = line == height              ? std::string_view(captions[i])
                                    : line < pictures[i].size() ? pictures[i][line]
                                                                : std::string_view();
      row += fmt::format("{:<{}}", cell, width + 2);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + '\n';
  }
  return text;
}

}  // namespace anneal
