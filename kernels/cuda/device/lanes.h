// Reads of several neighbours at once, and the one operation of sums of products.
#pragma once

#ifdef ANNEAL_ON_HOST
#define UNROLL
#define NO_UNROLL
#define UNROLL_BY(times)
#else
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define UNROLL_BY(times) UNROLL_PRAGMA(unroll times)
#define UNROLL_PRAGMA(text) _Pragma(#text)
#endif

// A value that the compiler knows nothing about: a sum that several readers need is then added
// once.
#ifdef ANNEAL_ON_HOST
template <class T>
inline T computed(T x) {
  return x;
}
#else
__device__ inline i32 computed(i32 x) {
  asm("" : "+r"(x));
  return x;
}
__device__ inline i64 computed(i64 x) {
  asm("" : "+l"(x));
  return x;
}
#endif

// (x & mask) | bits, in one operation: compilers take two where both constants are immediate.
#ifdef ANNEAL_ON_HOST
inline u32 masked_or(u32 x, u32 mask, u32 bits) { return (x & mask) | bits; }
#else
__device__ inline u32 masked_or(u32 x, u32 mask, u32 bits) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}
#endif

// Whether from[i] begins at a multiple of `bytes` bytes.
template <int bytes, class T>
__device__ inline bool begins_at(In<T> from, i64 i) {
  return u64((from + i).data) % bytes == 0;
}

// from[i], from[i + 1], ...: in one access if that is aligned.
template <int N, class T>
__device__ inline Vec<T, N> load_lanes(In<T> from, i64 i, bool aligned) {
  if constexpr (N > 1) {
    if (aligned) return load<N>(from, i);
  }
  Vec<T, N> lanes;
  UNROLL
  for (int lane = 0; lane < N; ++lane) lanes[lane] = from[i + lane];
  return lanes;
}

// The line that a tile reads as its line i where there are `count`, of `step` at once: beyond the
// last what is read does not matter. Up to twice the count it is not the same for all, since many
// reads of one place wait for each other (tiles that read so took up to 8 times as long on an H100,
// bench/results/2026-11-26-h100-2).
template <class I>
__device__ inline I readable_line(I i, I count, int step = 1) {
  if (i < count) return i;
  return i - count < count ? i - count : count - step;
}

// a * b + c: rounded once for floats, wrapping for integers.
__device__ inline f32 multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
__device__ inline f64 multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }
template <class T>
__device__ inline T multiply_add(T a, T b, T c) {
  return op::add(op::mul(a, b), c);
}

// A zero point as an element; floats have none but 0.
template <class T>
struct Narrow {
  template <class Acc>
  __device__ static T of(Acc x) {
    return T(x);
  }
};
template <>
struct Narrow<h16> {
  __device__ static h16 of(f32) { return h16{0}; }
};
template <>
struct Narrow<bf16> {
  __device__ static bf16 of(f32) { return bf16{0}; }
};
