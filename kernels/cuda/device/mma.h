// Tensor cores and asynchronous copies to shared memory, sm_80 and up. All threads of a warp call
// ldmatrix and mma together. Fragments are registers of packed elements, laid out as PTX says:
// with g = lane / 4 and t = lane % 4, of m16n8k16 (k16 of 16-bit elements; k32 of 8-bit elements
// has four to a register instead of two)
//   a[0] row g, a[1] row g + 8, columns 2t, 2t + 1; a[2], a[3] the same rows, columns + 8;
//   b0 rows 2t, 2t + 1 of column g; b1 rows + 8;
//   c[0], c[1] row g, columns 2t, 2t + 1; c[2], c[3] row g + 8.
// ldmatrix_x4 reads four 8 x 8 matrices of 16-bit elements (rows of 16 bytes, of any T): lane l
// gives in `i` the first element of row l % 8 of matrix l / 8, 16-byte aligned, and gets in
// result[m] of matrix m row g, columns 2t, 2t + 1; with _trans the matrix is transposed first.
// shared_as<To>(s) is the same memory as elements of another type, from their alignment on;
// byte_permute(a, b, selector) takes byte i of the result from a (0 to 3) or b (4 to 7), as digit i
// of the selector says.
#pragma once

#ifndef ANNEAL_ON_HOST

template <class T>
__device__ inline u32 shared_address(SharedArray<T> memory, i32 i) {
  // Of the array and the index apart: what does not change in a loop is computed before it.
  return static_cast<u32>(__cvta_generic_to_shared(memory.data)) + u32(i) * u32(sizeof(T));
}

template <class T>
__device__ inline Vec<u32, 4> ldmatrix_x4(SharedArray<T> from, i32 i) {
  Vec<u32, 4> m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(from, i))
               : "memory");
  return m;
}
template <class T>
__device__ inline Vec<u32, 4> ldmatrix_x4_trans(SharedArray<T> from, i32 i) {
  static_assert(sizeof(T) == 2, "only 16-bit elements are transposed");
  Vec<u32, 4> m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(from, i))
               : "memory");
  return m;
}

template <class To, class From>
__device__ inline SharedArray<To> shared_as(SharedArray<From> memory) {
  return {reinterpret_cast<To*>(memory.data)};
}
__device__ inline u32 byte_permute(u32 a, u32 b, u32 selector) {
  return __byte_perm(a, b, selector);
}

#define MMA(shape, types, c, letter)                                                    \
  asm volatile("mma.sync.aligned." shape ".row.col." types                              \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
               : "+" letter(c[0]), "+" letter(c[1]), "+" letter(c[2]), "+" letter(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// c += a * b of elements T: mma_m16n8k16<h16>(c, a, b0, b1), or bf16.
template <class T>
__device__ void mma_m16n8k16(Vec<f32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1);
template <>
__device__ inline void mma_m16n8k16<h16>(Vec<f32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k16", "f32.f16.f16.f32", c, "f");
}
template <>
__device__ inline void mma_m16n8k16<bf16>(Vec<f32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k16", "f32.bf16.bf16.f32", c, "f");
}
// c += a * b, wrapping: mma_m16n8k32<i8, i8>(c, a, b0, b1), either of them u8.
template <class A, class B>
__device__ void mma_m16n8k32(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1);
template <>
__device__ inline void mma_m16n8k32<i8, i8>(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k32", "s32.s8.s8.s32", c, "r");
}
template <>
__device__ inline void mma_m16n8k32<u8, i8>(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k32", "s32.u8.s8.s32", c, "r");
}
template <>
__device__ inline void mma_m16n8k32<i8, u8>(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k32", "s32.s8.u8.s32", c, "r");
}
template <>
__device__ inline void mma_m16n8k32<u8, u8>(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1) {
  MMA("m16n8k32", "s32.u8.u8.s32", c, "r");
}
#undef MMA

// Begins to copy `bytes` (4, 8 or 16, aligned to them) from from[j] to to[i], of which it reads
// `read` and writes zeros for the rest; all zeros, without reading, if not `valid`. Done when the
// calling thread has waited for it; other threads see it after a later barrier.
template <int bytes, int read = bytes, class T>
__device__ inline void copy_async(SharedArray<T> to, i32 i, In<T> from, i64 j, bool valid = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what cp.async can copy");
  const u32 at = shared_address(to, i);
  if constexpr (read != bytes) {
    // Two copies of constant sizes: one of a size in a register costs sums of 64 bits.
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %4, 0;\n\t"
        "@p cp.async.ca.shared.global [%0], [%1], %2, %3;\n\t"
        "@!p cp.async.ca.shared.global [%0], [%1], %2, 0;\n\t}"
        :
        : "r"(at), "l"(from.data + j), "n"(bytes), "n"(read), "r"(u32(valid))
        : "memory");
  } else if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from.data + j), "r"(valid ? bytes : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(at), "l"(from.data + j), "n"(bytes), "r"(valid ? bytes : 0)
                 : "memory");
  }
}
// Ends a group: this thread's copies since the group before.
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most the newest `groups` of this thread's groups are under way.
template <int groups>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

#else

template <class T>
inline Vec<u32, 4> emulated_ldmatrix(SharedArray<T> from, i32 i, bool transposed,
                                     emulator::Site site) {
  Vec<u32, 4> m;
  emulator::Thread& thread = emulated_thread();
  const u64 at = from.data + static_cast<u64>(static_cast<i64>(i)) * sizeof(T);
  thread.api->ldmatrix(thread, from.array, at, transposed, m.at, site);
  return m;
}
template <class T>
inline Vec<u32, 4> ldmatrix_x4(SharedArray<T> from, i32 i,
                               emulator::Site site = emulator::Site::here()) {
  return emulated_ldmatrix(from, i, false, site);
}
template <class T>
inline Vec<u32, 4> ldmatrix_x4_trans(SharedArray<T> from, i32 i,
                                     emulator::Site site = emulator::Site::here()) {
  static_assert(sizeof(T) == 2, "only 16-bit elements are transposed");
  return emulated_ldmatrix(from, i, true, site);
}

template <class To, class From>
inline SharedArray<To> shared_as(SharedArray<From> memory) {
  return {memory.data, memory.begin, memory.bytes, memory.array};
}
inline u32 byte_permute(u32 a, u32 b, u32 selector) {
  u32 bytes = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 from = selector >> 4 * i & 7;
    bytes |= ((from < 4 ? a : b) >> 8 * (from % 4) & 0xff) << 8 * i;
  }
  return bytes;
}

template <class A, class B>
struct EmulatedMma;
template <>
struct EmulatedMma<h16, h16> {
  static constexpr emulator::Mma kKind = emulator::Mma::kF16;
};
template <>
struct EmulatedMma<bf16, bf16> {
  static constexpr emulator::Mma kKind = emulator::Mma::kBf16;
};
template <>
struct EmulatedMma<i8, i8> {
  static constexpr emulator::Mma kKind = emulator::Mma::kS8S8;
};
template <>
struct EmulatedMma<u8, i8> {
  static constexpr emulator::Mma kKind = emulator::Mma::kU8S8;
};
template <>
struct EmulatedMma<i8, u8> {
  static constexpr emulator::Mma kKind = emulator::Mma::kS8U8;
};
template <>
struct EmulatedMma<u8, u8> {
  static constexpr emulator::Mma kKind = emulator::Mma::kU8U8;
};
template <class T>
inline void mma_m16n8k16(Vec<f32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1,
                         emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  thread.api->mma(thread, EmulatedMma<T, T>::kKind, c.at, a.at, b0, b1, site);
}
template <class A, class B>
inline void mma_m16n8k32(Vec<i32, 4>& c, const Vec<u32, 4>& a, u32 b0, u32 b1,
                         emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  thread.api->mma(thread, EmulatedMma<A, B>::kKind, c.at, a.at, b0, b1, site);
}

// Done when it is waited for and no earlier, so that reading too early shows.
template <int bytes, int read = bytes, class T>
inline void copy_async(SharedArray<T> to, i32 i, In<T> from, i64 j, bool valid = true,
                       emulator::Site site = emulator::Site::here()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what cp.async can copy");
  emulator::Thread& thread = emulated_thread();
  const u64 at = to.data + static_cast<u64>(static_cast<i64>(i)) * sizeof(T);
  if (valid)
    emulated_count(emulator::Count::kCopyLoad, from.number,
                   from.data + static_cast<u64>(j) * sizeof(T), read, site);
  emulated_count(emulator::Count::kCopyStore, to.array, at, bytes, site);
  if constexpr (read == bytes) {
    const void* source = nullptr;
    if (valid)
      source = from.template find<const Vec<T, bytes / int(sizeof(T))> >(EmulatedIndex(j, site));
    thread.api->copy_async(thread, to.array, at, reinterpret_cast<u64>(source), bytes, site);
    return;
  }
  for (int k = 0; k < bytes / int(sizeof(T)); ++k) {
    const T* source = nullptr;
    if (valid && k * int(sizeof(T)) < read)
      source = from.template find<const T>(EmulatedIndex(j + k, site));
    if (k == 0 && reinterpret_cast<u64>(source) % bytes != 0)
      emulated_refuse(from.begin, reinterpret_cast<u64>(source), bytes, emulator::Access::kRead,
                      site);
    thread.api->copy_async(thread, to.array, at + static_cast<u64>(k) * sizeof(T),
                           reinterpret_cast<u64>(source), sizeof(T), site);
  }
}
inline void copy_async_commit() {
  emulator::Thread& thread = emulated_thread();
  thread.api->copy_async_commit(thread);
}
template <int groups>
inline void copy_async_wait() {
  emulator::Thread& thread = emulated_thread();
  thread.api->copy_async_wait(thread, groups);
}

#endif

// Byte j of row i to byte i of row j.
template <class T>
__device__ inline void transpose_bytes(Vec<T, 4> (&rows)[4]) {
  static_assert(sizeof(T) == 1, "of bytes");
  const u32 a = __builtin_bit_cast(u32, rows[0]), b = __builtin_bit_cast(u32, rows[1]),
            c = __builtin_bit_cast(u32, rows[2]), d = __builtin_bit_cast(u32, rows[3]);
  const u32 low_ab = byte_permute(a, b, 0x5140), low_cd = byte_permute(c, d, 0x5140),
            high_ab = byte_permute(a, b, 0x7362), high_cd = byte_permute(c, d, 0x7362);
  rows[0] = __builtin_bit_cast(Vec<T, 4>, byte_permute(low_ab, low_cd, 0x5410));
  rows[1] = __builtin_bit_cast(Vec<T, 4>, byte_permute(low_ab, low_cd, 0x7632));
  rows[2] = __builtin_bit_cast(Vec<T, 4>, byte_permute(high_ab, high_cd, 0x5410));
  rows[3] = __builtin_bit_cast(Vec<T, 4>, byte_permute(high_ab, high_cd, 0x7632));
}
