// Dims: the sizes of a tensor's axes as plain numbers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace anneal {

inline constexpr int kMaxRank = 8;  // the most axes that a tensor has

namespace detail {
[[noreturn]] void fail_rank();  // kUnsupported: more than kMaxRank axes
}

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
  constexpr size_t size() const { return static_cast<size_t>(rank_); }
  constexpr bool empty() const { return rank_ == 0; }
  constexpr T operator[](int axis) const { return values_[axis]; }
  constexpr T& operator[](int axis) { return values_[axis]; }
  void push_back(T value) {
    if (rank_ == kMaxRank) detail::fail_rank();
    values_[rank_++] = value;
  }
  constexpr T back() const { return values_[rank_ - 1]; }  // REQUIRES: !empty()
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + rank_; }
  T* begin() { return values_.data(); }
  T* end() { return values_.data() + rank_; }
  std::span<const T> span() const { return {begin(), end()}; }
  bool operator==(const PerAxis&) const = default;

 private:
  std::array<T, kMaxRank> values_{};  // T{} from rank_ on
  int rank_ = 0;
};

using Dims = PerAxis<int64_t>;  // sizes or strides, in elements

// The number of elements. Fails with kInvalidArgument on a negative size or above 2^63 elements.
int64_t count(const Dims& dims);
// Strides of dense row-major memory, in elements: the last axis varies fastest.
Dims row_major_strides(const Dims& dims);
std::string to_string(const Dims& dims);  // "[1,3,224,224]"

}  // namespace anneal
