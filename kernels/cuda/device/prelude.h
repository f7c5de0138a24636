// The language of device functions: C++ for NVRTC, and the same text for the host compiler, where
// every access is checked (host.h). Kernels use the names of this file, CUDA's threadIdx, blockIdx,
// blockDim, gridDim, __syncthreads(), __syncwarp() and __shfl_*_sync(), and nothing else of CUDA.
//
// In<T> and Out<T> are operands: p[i] reads, q[i] = v writes, p + n moves the first element.
// SharedArray<T> is shared memory, declared with SHARED(T, name, count) or, its size given by the
// launch, DYNAMIC_SHARED(T, name). load<N>(p, i) and store(q, i, Vec<T, N>) access N elements at
// once, aligned to N elements. atomic_add(q, i, v), atomic_max, atomic_min and atomic_cas(q, i,
// compare, v) change an element of Out or SharedArray and return what it was. reciprocal(x) is
// about 1 / x. An element of SharedArray is read where it is given a type: `const f32 x = s[i];`,
// neither `auto x` nor max(s[i], s[j]). Sizes and indices are i64, or i32 where a kernel knows they
// fit. Constants of types and namespaces are enumerators: NVRTC gives a static member, or a
// constant of a namespace, memory in every module and several names in its image.
#pragma once

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;
struct h16 {  // IEEE half: storage only
  u16 bits;
};
struct bf16 {
  u16 bits;
};

template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T at[N];
  __device__ T& operator[](int i) { return at[i]; }
  __device__ const T& operator[](int i) const { return at[i]; }
};

#ifndef ANNEAL_ON_HOST

#define KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name
#define SHARED(T, name, count)                                               \
  __shared__ __align__(16) unsigned char name##_memory[sizeof(T) * (count)]; \
  const SharedArray<T> name { reinterpret_cast<T*>(name##_memory) }
#define DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char dynamic_memory[]; \
  const SharedArray<T> name { reinterpret_cast<T*>(dynamic_memory) }

template <class T>
struct In {
  const T* data;
  __device__ const T& operator[](i64 i) const { return data[i]; }
  __device__ In operator+(i64 n) const { return {data + n}; }
};
template <class T>
struct Out {
  T* data;
  __device__ T& operator[](i64 i) const { return data[i]; }
  __device__ Out operator+(i64 n) const { return {data + n}; }
};
template <class T>
struct SharedArray {
  T* data;
  __device__ T& operator[](i32 i) const { return data[i]; }
  __device__ SharedArray operator+(i32 n) const { return {data + n}; }
};
template <int N, template <class> class Memory, class T>
__device__ Vec<T, N> load(Memory<T> from, i64 i) {
  return *reinterpret_cast<const Vec<T, N>*>(from.data + i);
}
template <int N, class T>
__device__ void store(SharedArray<T> to, i64 i, const Vec<T, N>& value) {
  *reinterpret_cast<Vec<T, N>*>(to.data + i) = value;
}
// Written out: a compiler that merges the ends of branches loses the alignment, and then stores 2
// or 4 bytes at a time.
template <int N, class T>
__device__ void store(Out<T> to, i64 i, const Vec<T, N>& value) {
  T* const at = to.data + i;
  if constexpr (sizeof(value) == 16) {
    const auto words = __builtin_bit_cast(Vec<u32, 4>, value);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(at), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  } else if constexpr (sizeof(value) == 8) {
    const auto words = __builtin_bit_cast(Vec<u32, 2>, value);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(at), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else if constexpr (sizeof(value) == 4) {
    asm volatile("st.global.b32 [%0], %1;"
                 :
                 : "l"(at), "r"(__builtin_bit_cast(u32, value))
                 : "memory");
  } else {
    *reinterpret_cast<Vec<T, N>*>(at) = value;
  }
}

__device__ inline f32 to_f32(h16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ inline f32 to_f32(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ inline h16 to_h16(f32 x) {  // to the nearest, ties to even; as the next two
  h16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ inline h16 to_h16(f64 x) {
  h16 y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
  return y;
}
__device__ inline bf16 to_bf16(f32 x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// About 1 / x, to a unit or two in the last place, for x that is neither huge nor tiny.
__device__ inline f32 reciprocal(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <template <class> class Memory, class T>
__device__ T atomic_add(Memory<T> to, i64 i, T value) {
  return atomicAdd(to.data + i, value);
}
template <template <class> class Memory, class T>
__device__ T atomic_max(Memory<T> to, i64 i, T value) {
  return atomicMax(to.data + i, value);
}
template <template <class> class Memory, class T>
__device__ T atomic_min(Memory<T> to, i64 i, T value) {
  return atomicMin(to.data + i, value);
}
template <template <class> class Memory, class T>
__device__ T atomic_cas(Memory<T> to, i64 i, T compare, T value) {
  return atomicCAS(to.data + i, compare, value);
}

#else
#include "anneal/kernels/cuda/device/host.h"
#endif
