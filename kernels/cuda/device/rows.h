// Reductions over the 1, 32 or all 256 threads of a block that share a row.

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return op::add(a, b);
  }
};
struct Multiply {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return op::mul(a, b);
  }
};
struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return op::max(a, b);
  }
};
struct Smallest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return op::min(a, b);
  }
};

// An element and where it is in its row; -1: none.
template <class T>
struct Place {
  T value;
  i64 index;
};
// The place of the largest element, or the smallest: a NaN before all others, and of equals the
// first, or the last.
template <bool largest, bool last>
struct Best {
  template <class T>
  __device__ Place<T> operator()(Place<T> a, Place<T> b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a.value == b.value || (a_nan && b_nan)) return (a.index < b.index) != last ? a : b;
    if (a_nan || b_nan) return a_nan ? a : b;
    return (a.value < b.value) != largest ? a : b;
  }
};

template <class T>
__device__ inline T from_lane(T value, int distance) {
  return __shfl_xor_sync(0xffffffffu, value, distance);
}
template <class T>
__device__ inline Place<T> from_lane(Place<T> place, int distance) {
  return {from_lane(place.value, distance), from_lane(place.index, distance)};
}

// What combine makes of the threads' values, for each of them. partial: one element per warp.
template <int threads, class T, class Combine>
__device__ inline T over_row(T value, Shared<T> partial, Combine combine) {
  if constexpr (threads > 1)
    for (int distance = 16; distance > 0; distance /= 2)
      value = combine(value, from_lane(value, distance));
  if constexpr (threads > 32) {
    __syncthreads();  // what was in `partial` has been read
    if (threadIdx.x % 32 == 0) partial[i32(threadIdx.x / 32)] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < threads / 32; ++warp) {
      const T other = partial[warp];
      value = combine(value, other);
    }
  }
  return value;
}
