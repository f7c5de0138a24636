// The grid and the arguments of one launch of a function.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "anneal/core/tensor_view.h"

namespace anneal::cuda {

struct Geometry {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t shared_bytes = 0;  // dynamic
};

// The arguments of one launch, in the order of the function's parameters.
class Arguments {
 public:
  // A tensor's data, for In<T> and Out<T>.
  void add(const TensorView& view) { add(view.data); }
  template <class T>
  void add(T value) {  // REQUIRES: fewer than kMost before it
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
    __builtin_memcpy(&values_[count_], &value, sizeof(T));
    ++count_;
  }
  static constexpr size_t kMost = 120;
  size_t count() const { return count_; }
  void* const* pointers();  // one to each value

 private:
  std::array<uint64_t, kMost> values_;
  std::array<void*, kMost> pointers_;
  size_t count_ = 0;
};

// The first address at or after `memory` that is a multiple of `alignment`, a power of two.
inline std::byte* aligned_up(std::byte* memory, size_t alignment) {
  return memory + (0 - reinterpret_cast<uintptr_t>(memory)) % alignment;
}

}  // namespace anneal::cuda
