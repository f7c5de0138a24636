// The version of the library that is running, which may differ from the headers compiled against.
#pragma once
#include <string_view>

namespace anneal {

std::string_view version();  // "0.1.0"

}  // namespace anneal
