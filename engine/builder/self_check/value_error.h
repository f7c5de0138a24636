// The difference between two tensors of numbers, as shares of the expected one.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "anneal/core/tensor.h"

namespace anneal {

struct ValueError {
  double relative = 0;   // root mean square of the difference over that of the expected tensor
  double worst = 0;      // largest difference over the largest magnitude that is expected
  double largest = 0;    // magnitude that is expected
  double away = 0;       // largest difference
  double differing = 0;  // share of the elements that are not equal
  int64_t lost = 0;      // elements that are finite only in the expected tensor
};
// Elements that are not finite on either side are left out of all but `lost`. Differences up to
// `noise` count as none. If zeros are expected, any other difference has the shares 1. REQUIRES:
// equal counts
ValueError value_error(std::span<const float> got, std::span<const float> expected,
                       float noise = 0);

// The share of the elements that are further apart. REQUIRES: equal counts
double share_apart(std::span<const float> got, std::span<const float> expected, double steps);

// The elements as f32, row-major. REQUIRES: no string
std::vector<float> floats_of(const ConstTensorView& view);
// The other way round. REQUIRES: as many elements
void write_floats(const TensorView& to, std::span<const float> elements);

// A copy of a value, in the order of its memory where that is dense.
class KeptValue {
 public:
  explicit KeptValue(const TensorView& view);

  const Dims& dims() const { return dims_; }
  std::span<const float> elements() const { return elements_; }
  std::vector<float> row_major() const;
  // Into a tensor of any type of numbers. REQUIRES: equal dims
  void write_to(const TensorView& to) const;
  void round_to(DataType half);
  // The error of a tensor against this one. REQUIRES: equal dims
  ValueError error_of(const TensorView& got, float noise = 0) const;
  double share_apart(const TensorView& got, double steps) const;

 private:
  TensorView view() const;

  std::vector<float> elements_;
  Dims dims_, strides_;
};

// The 16-bit type that has all these numbers, or f32. f16 is asked first, so of few digits it is
// f16.
DataType narrowest(std::span<const float> elements);
void round_to(DataType half, std::span<float> elements);

}  // namespace anneal
