// Sizes and shapes. A Size is a known integer or an expression over unknowns that lives in a
// SizeTable (core/size.h); a Shape holds sizes, Dims holds plain integers.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "anneal/core/error.h"

namespace anneal {

inline constexpr int kMaxRank = 8;

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
  // What infer() returns for a size that only the values at run time decide. A graph replaces it by
  // a fresh symbol; arithmetic with it gives unknown().
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

// One T per axis, at most kMaxRank, stored in place.
template <class T>
class PerAxis {
 public:
  constexpr PerAxis() = default;
  PerAxis(std::initializer_list<T> values)
      : PerAxis(std::span<const T>(values.begin(), values.size())) {}
  explicit PerAxis(std::span<const T> values) {
    for (const T& value : values) push_back(value);
  }
  static PerAxis filled(int rank, T value) {
    PerAxis result;
    for (int axis = 0; axis < rank; ++axis) result.push_back(value);
    return result;
  }
  constexpr int rank() const { return rank_; }
  constexpr T operator[](int axis) const { return values_[axis]; }
  constexpr T& operator[](int axis) { return values_[axis]; }
  void push_back(T value) {
    if (rank_ == kMaxRank) fail(Code::kUnsupported, "a tensor of more than 8 axes");
    values_[rank_++] = value;
  }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + rank_; }
  std::span<const T> span() const { return {begin(), end()}; }
  bool operator==(const PerAxis& other) const {
    if (rank_ != other.rank_) return false;
    for (int axis = 0; axis < rank_; ++axis)
      if (!(values_[axis] == other.values_[axis])) return false;
    return true;
  }

 private:
  std::array<T, kMaxRank> values_{};
  int rank_ = 0;
};

using Shape = PerAxis<Size>;
using Dims = PerAxis<int64_t>;

bool known(const Shape& shape);    // every size is
Dims dims_of(const Shape& shape);  // REQUIRES: known(shape)
Shape shape_of(const Dims& dims);
int64_t count(const Dims& dims);           // of elements; fails with kInvalidArgument on overflow
Dims row_major_strides(const Dims& dims);  // in elements
// Strides of an array whose axis 1 moves fastest (NHWC for [N,C,H,W]); row-major below rank 3.
Dims channels_last_strides(const Dims& dims);
std::string to_string(const Dims& dims);  // "[1,3,224,224]"

}  // namespace anneal
