// A regular expression of the command line over names that come from files.
#pragma once
#include <regex>
#include <string>
#include <string_view>

namespace anneal {

class NamePattern {
 public:
  // Fails with kInvalidArgument, naming the flag.
  NamePattern(const std::string& text, std::string_view flag);
  // Whether it matches somewhere. Of a name only the first kilobyte counts: the matcher recurses.
  bool matches(std::string_view name) const;

 private:
  std::regex regex_;
};

}  // namespace anneal
