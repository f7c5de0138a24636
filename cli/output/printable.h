// Text with names from files, made safe for a terminal.
#pragma once
#include <string>
#include <string_view>

namespace anneal {

enum class LineEnds {
  kEscaped,
  kIndented,  // stay where the next line begins with two blanks, as those of our lists do
  kKept,
};
// Control characters become \x1b and the like: a name cannot move the cursor, nor begin a line that
// looks like one of ours.
std::string printable(std::string_view text, LineEnds line_ends = LineEnds::kEscaped);
// The text as one word of a shell, in quotes where it needs them.
std::string quoted(const std::string& text);

}  // namespace anneal
