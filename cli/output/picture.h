// Grey pictures as text, for terminals of any kind.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace anneal {

// Rows of characters from blank (0) to '@' (255), two picture rows per line, so that a character
// covers about a square; at most `width` characters wide.
std::vector<std::string> picture_text(std::span<const uint8_t> pixels, int64_t rows,
                                      int64_t columns, int64_t width = 32);
// Pictures beside each other with a caption below each.
std::string picture_row(const std::vector<std::vector<std::string>>& pictures,
                        const std::vector<std::string>& captions);

}  // namespace anneal
