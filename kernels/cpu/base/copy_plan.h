// Copies of elements between two strided views of the same dims, in any order in memory. Bytes may
// go through a lookup table.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/core/parallel.h"
#include "anneal/core/shape.h"
#include "anneal/kernels/cpu/base/byte_lookup.h"

namespace anneal::cpu {

// REQUIRES: elements of one byte.
struct ByteLookup {
  const uint8_t* table;
  LookUpBytes look_up;
};

class CopyPlan {
 public:
  CopyPlan() = default;
  // Strides count elements.
  CopyPlan(size_t element_size, const Dims& dims, const Dims& from, const Dims& to);

  int64_t elements() const { return elements_; }
  void run(const std::byte* from, std::byte* to) const { run(from, to, 0, items_, nullptr); }
  void run(const std::byte* from, std::byte* to, ThreadTeam& team,
           const ByteLookup* lookup = nullptr) const;

 private:
  void run(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
           const ByteLookup* lookup) const;

  size_t element_size_ = 1;
  int64_t elements_ = 0, items_ = 0;
  // Outer axes, then a block of rows and columns; columns lie closest together in `to`.
  Dims outer_, outer_from_, outer_to_;
  int64_t rows_ = 1, columns_ = 1, rows_of_item_ = 1, blocks_ = 1;
  int64_t row_from_ = 0, row_to_ = 0, column_from_ = 0, column_to_ = 0;
};

}  // namespace anneal::cpu
