// Interval arithmetic on the numbers of a value.
#pragma once
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/tensor.h"
#include "anneal/graph/program/program.h"

namespace anneal {

struct NumberRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool is_integer = false;   // all are whole numbers
  double magnitude() const;  // infinite where nothing is known
  bool operator==(const NumberRange&) const = default;
};
inline constexpr NumberRange kZeroRange = {0, 0, true};

// 0 where either is: of infinite ends no infinity is claimed.
double product_of_ends(double a, double b);
NumberRange symmetric_range(double most, bool is_integer = false);
NumberRange hull(const NumberRange& a, const NumberRange& b);
NumberRange range_of_number(double value);
// Of its elements, NaN aside. threads: 0: one per core.
NumberRange range_of_tensor(const Tensor& tensor, int threads = 1);
NumberRange range_of_type(DataType dtype);
bool is_wide_integer(DataType dtype);  // of 32 bits and more

// The range of the result of an instruction; operands beyond its own are ignored.
NumberRange range_of(const Instruction& one, DataType result, DataType operand,
                     const NumberRange& a, const NumberRange& b, const NumberRange& c);
NumberRange range_of_literal(const Instruction& one);
NumberRange quotient_range(const NumberRange& a, const NumberRange& b);

}  // namespace anneal
