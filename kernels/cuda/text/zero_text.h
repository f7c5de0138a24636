// Zero points of 8-bit operands in the text of products.
#pragma once
#include <string>
#include <string_view>

#include "anneal/kernels/cuda/text/extents.h"

namespace anneal::cuda {

// An input of zero points: a scalar, or one per line of an operand. If it is not there, or constant
// zeros, zero.
class ZeroText {
 public:
  // name: of the parameter. accumulator: "i32".
  ZeroText(const Request& request, Extents& extents, int input, std::string_view name,
           std::string_view accumulator);
  bool is_present() const { return !parameter_.empty(); }
  bool is_per_line() const { return per_line_; }
  // ", In<u8> a_zero": of the function.
  const std::string& parameter() const { return parameter_; }
  // For line `i` (i64), where the parameter and those of the extents exist.
  const std::string& value() const { return value_; }
  // Members of a struct that holds those, and ", a_zero, v0", which initializes them.
  std::string members(const Extents& extents) const;
  std::string arguments(const Extents& extents) const;

 private:
  std::string name_, declaration_, parameter_, value_;
  bool per_line_ = false;
};

// Whether the op has this input.
bool has_input(const Request& request, int input);

}  // namespace anneal::cuda
