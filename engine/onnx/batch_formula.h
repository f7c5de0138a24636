// Bytes as a formula in the batch.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace anneal {

// Of the bytes that batch_formula() was given.
struct BatchFormula {
  std::string text;             // "4096 + 64*N"
  int64_t first = 0, last = 0;  // the batches
  // The text gives the bytes of each batch. Otherwise it gives an upper bound.
  bool is_exact = true;
};

// A polynomial of degree 2 with whole coefficients, if one is exact. Otherwise the line that does
// not fall and that is above the bytes by the least sum. bytes: of all batches from `first` on.
// REQUIRES: not empty
BatchFormula batch_formula(int64_t first, std::span<const int64_t> bytes, const std::string& name);

}  // namespace anneal
