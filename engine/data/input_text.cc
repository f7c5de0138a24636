#include "anneal/engine/data/input_text.h"

#include <fmt/format.h>

namespace anneal {

std::string input_text(const DataInput& input) {
  std::string text;
  for (const int64_t size : input.dims)
    text += (text.empty() ? "" : ",") + (size < 0 ? std::string("?") : fmt::format("{}", size));
  return fmt::format("\"{}\" {}[{}]", input.name, to_string(input.dtype), text);
}

}  // namespace anneal
