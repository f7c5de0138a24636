// Writing of JSON files.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace anneal {

using Json = nlohmann::ordered_json;

// Names that are not UTF-8 are shown with replacement characters. Ends with a line end.
std::string json_text(const Json& json);
void write_json(const std::string& path, const Json& json);  // whole or not at all

}  // namespace anneal
