// Attributes of operators from outside, as the model gives them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "anneal/core/bytes.h"
#include "anneal/core/tensor.h"

namespace anneal {

// A single number or text is a list of one.
struct CustomAttribute {
  using Value =
      std::variant<std::vector<int64_t>, std::vector<float>, std::vector<std::string>, Tensor>;
  std::string name;
  Value value;
  bool operator==(const CustomAttribute&) const = default;
};

void save(ByteWriter& to, const CustomAttribute& attribute);
CustomAttribute load_custom_attribute(ByteReader& from);  // fails with kIncompatiblePlan

// "alpha":f[0.5]; a tensor is "table":t"f32[2] 0000803f00000040".
std::string to_string(const CustomAttribute& attribute);
CustomAttribute parse_custom_attribute(std::string_view text);  // fails with kInvalidArgument

// A text between quotes, with a backslash before quotes and backslashes.
std::string quoted_text(std::string_view text);
std::string unquoted_text(std::string_view text);  // fails with kInvalidArgument

}  // namespace anneal
