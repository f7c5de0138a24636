// Reductions over the threads of a block that share a row.

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

// The result of combine over the values of 1, 32 or all 256 threads that share a row, for each
// thread. partial: one element per warp.
template <int threads, class T, class Combine>
__device__ inline T over_row(T value, SharedArray<T> partial, Combine combine) {
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

// The same where a block has runs of `run` threads for each of `columns` rows, again and again.
// partial: one element per thread of the block, a power of two of them.
template <int run, int columns, class T, class Combine>
__device__ inline T over_columns(T value, SharedArray<T> partial, Combine combine) {
  const i32 thread = i32(threadIdx.x);
  __syncthreads();  // what was in `partial` has been read
  partial[thread] = value;
  for (i32 distance = i32(blockDim.x) / 2; distance >= run * columns; distance /= 2) {
    __syncthreads();
    if (thread < distance) {
      const T other = partial[thread + distance];
      value = combine(value, other);
      partial[thread] = value;
    }
  }
  __syncthreads();
  const i32 first = thread / run % columns * run;
  value = partial[first];
  for (i32 i = 1; i < run; ++i) {
    const T other = partial[first + i];
    value = combine(value, other);
  }
  return value;
}
