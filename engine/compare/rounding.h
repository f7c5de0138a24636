// Elements that two engines rounded to different integers, and whether a tie explains them.
#pragma once
#include "anneal/core/tensor.h"

namespace anneal {

// Rounding is monotone: where two floats give integers one apart, a tie lies between them, so their
// distance bounds that of either to the tie. at_ties counts the elements where that distance is
// what the order of additions may do, 1e-5 of the largest magnitude: no kernel could decide them
// alike.
struct Rounding {
  int64_t elements = 0, differing = 0;
  double most_quanta = 0;  // the largest difference
  int64_t at_ties = 0;
  double widest_tie = 0;  // the largest distance of two floats at a tie
};
// The sources are the floats that were quantized; null if they are not known, and then nothing is
// at a tie. REQUIRES: integers, all of the same dims.
Rounding rounding_of(const ConstTensorView& got, const ConstTensorView& expected,
                     const ConstTensorView* got_source, const ConstTensorView* expected_source);

}  // namespace anneal
