#include "anneal/cli/flags/name_pattern.h"

#include <fmt/format.h>

#include "anneal/cli/output/errors.h"

namespace anneal {
namespace {

constexpr size_t kLongestName = 1024;

}  // namespace

NamePattern::NamePattern(const std::string& text, std::string_view flag) {
  try {
    regex_ = std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("{} \"{}\" is no regular expression: {}", flag, text, error.what()));
  }
}

bool NamePattern::matches(std::string_view name) const {
  name = name.substr(0, kLongestName);
  return std::regex_search(name.begin(), name.end(), regex_);
}

}  // namespace anneal
