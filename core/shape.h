// Sizes and shapes. A Size is a known integer, or an expression over unknowns that lives in a
// SizeTable (core/size/size.h). A Shape holds sizes; Dims (core/dims.h) holds plain integers.
#pragma once
#include <cstdint>

#include "anneal/core/dims.h"

namespace anneal {

// Equal expressions of one table have equal ids, so == decides equality of normal forms; two sizes
// that differ here may still be equal for some, but not for all, values of the unknowns.
class Size {
 public:
  constexpr Size(int64_t value = 0) : value_(value) {}
  // For SizeTable. Ids mean nothing outside the table they come from.
  static constexpr Size expression(uint32_t id) {
    Size size;
    size.expression_ = id;
    return size;
  }
  // The result of infer() for a size that depends on values at run time. A graph replaces it by a
  // fresh symbol; arithmetic with it gives unknown().
  static constexpr Size unknown() { return expression(kUnknown); }
  constexpr bool known() const { return expression_ == kKnown; }
  constexpr bool is_unknown() const { return expression_ == kUnknown; }
  constexpr int64_t value() const { return value_; }             // REQUIRES: known()
  constexpr uint32_t expression() const { return expression_; }  // REQUIRES: an expression
  bool operator==(const Size&) const = default;

 private:
  static constexpr uint32_t kKnown = ~0u;
  static constexpr uint32_t kUnknown = ~0u - 1;
  int64_t value_ = 0;
  uint32_t expression_ = kKnown;
};

using Shape = PerAxis<Size>;

bool known(const Shape& shape);    // every size is
Dims dims_of(const Shape& shape);  // REQUIRES: known(shape)
Shape shape_of(const Dims& dims);

}  // namespace anneal
