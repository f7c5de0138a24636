// The rules of `anneal check` for whether an output is close enough to its reference, as a pure
// function.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "anneal/core/tensor.h"

namespace anneal {

// The number formats that the model computes with, derived from its graph before optimization.
enum class Arithmetic : uint8_t {
  kInteger,    // no value is a float
  kFloat,      // some value is
  kQuantized,  // a convolution or matrix product stands between Dequantize and Quantize
};

struct Tolerance {
  double rtol = 1e-3, atol = 1e-5;
  // The share of an output's elements that may be outside, rounded down. Unset: none for floats and
  // bool; for integers none, 0.1 % or 2 %, by the model's arithmetic.
  std::optional<double> max_differ = {};
  bool ranked = true;  // of a kQuantized model the largest element must stay in its place
};

struct Comparison {
  std::string why;                  // empty: close enough
  double max_abs = 0, max_rel = 0;  // largest errors; relative where the reference is not 0
};

// NaN equals NaN and an infinity equals itself. A float element is within |got - expected| <= atol
// + rtol * |expected|; of a kQuantized model within 3 % of the reference's largest magnitude too,
// if then the largest element along the longest axis stays in its place where that axis has 10
// elements or more (of equals in either tensor, any) and the tolerance says `ranked`.
Comparison compare_output(const ConstTensorView& got, const ConstTensorView& expected,
                          const Tolerance& tolerance, Arithmetic arithmetic);

}  // namespace anneal
