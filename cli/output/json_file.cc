#include "anneal/cli/output/json_file.h"

#include <span>

#include "anneal/core/file.h"

namespace anneal {

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_json(const std::string& path, const Json& json) {
  const std::string text = json_text(json);
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace anneal
