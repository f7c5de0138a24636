#include "anneal/cli/output/json_file.h"

#include <span>

#include "anneal/cli/output/text_file.h"

namespace anneal {

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_json(const std::string& path, const Json& json) { write_text(path, json_text(json)); }

}  // namespace anneal
