// The size of objects in a JSON text from outside.
#pragma once
#include <string_view>

namespace anneal {

// Fails with kInvalidArgument if an object of the text has more than 10,000 keys: reading it takes
// time in proportion to the square of their number. The text need not be well-formed.
void require_few_keys(std::string_view json);

}  // namespace anneal
