// Bytes as a formula in the batch.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace anneal {

struct BytesOfBatch {
  int64_t batch = 0, bytes = 0;
};

struct BatchFormula {
  std::string text;             // "4096 + 64*N"
  int64_t first = 0, last = 0;  // the compared batches
  // Every compared batch has these bytes. Otherwise none has more.
  bool is_exact = true;
};

// A polynomial of degree 2 with whole coefficients, if one is exact. Otherwise the line that no
// compared batch exceeds and that is above them by the least sum of bytes. points: the first three
// of consecutive batches, all in ascending order. nullopt: fewer than four points.
std::optional<BatchFormula> batch_formula(std::span<const BytesOfBatch> points,
                                          const std::string& name);

}  // namespace anneal
