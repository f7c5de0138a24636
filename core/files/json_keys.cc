#include "anneal/core/files/json_keys.h"

#include <fmt/format.h>

#include <vector>

#include "anneal/core/fail.h"

namespace anneal {

void require_few_keys(std::string_view json) {
  constexpr int kMostKeys = 10'000;
  std::vector<int> keys = {0};  // of the objects around the character
  bool is_in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') is_in_text = !is_in_text;
    if (is_in_text) {
      if (c == '\\') ++i;
    } else if (c == '{') {
      keys.push_back(0);
    } else if (c == '}' && keys.size() > 1) {
      keys.pop_back();
    } else if (c == ':' && ++keys.back() > kMostKeys) {
      fail(ErrorCode::kInvalidArgument,
           fmt::format("an object of the JSON has more than {} keys", kMostKeys));
    }
  }
}

}  // namespace anneal
