// The language of device functions on the host: every access checked, everything that threads do
// together left to the emulated device. Replaces the device half of prelude.h. ANNEAL_CHECK_SHARED
// is 1 if each access to shared memory is checked for races and unwritten elements, 0 if only its
// bounds are. ANNEAL_COUNT is 1 if accesses are counted.
//
// A thread of CUDA is a fiber with its own stack (emulated/fibers.h), whose first bytes are its
// emulator::Thread. emulated_thread() finds that from any address of the stack:
//
//    aligned to kStackBytes                       __builtin_frame_address(0)
//    |                                                     |
//    +--------+-------+------------------------------------+-----------+
//    | Thread | guard |  free                  <-- grows   |  frames   |
//    +--------+-------+------------------------------------+-----------+
//    first page, and the page behind it stops a stack that grows too far
//
// BlockRunner (emulated/block.h) runs one block after the other, and of a block one fiber after the
// other, each until it waits. Forward, a block of 64 threads with one barrier runs like this:
//
//    warp 0   thread  0   ====|b          =====
//                     1       ====|b           =====
//                    ...
//    warp 1          63               ====|b         ...
//                                         ^ the last to come lets all go on
//
// What threads meet at is a call of emulator::Api: __syncthreads() for all threads of the block,
// __syncwarp(), shuffles, votes, ldmatrix and mma for the lanes of a warp. mma.h and mma_product.h
// say which rows and columns a lane has; the last lane to come computes for all.
//
// An access goes its shortest way if it is good, and else to the Api, which names the fault:
//
//    In, Out        EmulatedOperand::find(): in [begin, begin + bytes), aligned  -> host memory
//    SharedArray    at(): in the array's bounds -> EmulatedElement, which with ANNEAL_CHECK_SHARED
//                   tells the Api of each read and write by line and thread
//    copy_async     done when the thread waits for its group, and no earlier: stages fill as late
//                   as the rules allow
#pragma once

namespace emulator = anneal::cuda::emulator;

#define EMULATED_INLINE inline __attribute__((always_inline))

EMULATED_INLINE emulator::Thread& emulated_thread() {
  const u64 here = reinterpret_cast<u64>(__builtin_frame_address(0));
  return *reinterpret_cast<emulator::Thread*>(here & ~(emulator::kStackBytes - 1));
}
#define threadIdx (emulated_thread().thread_index)
#define blockIdx (emulated_thread().block_index)
#define blockDim (emulated_thread().block_size)
#define gridDim (emulated_thread().grid_size)

// Accesses that the quick checks refuse; out of the way of those that are good.
__attribute__((noinline, cold)) static void emulated_refuse(u64 begin, u64 address, u32 bytes,
                                                            emulator::Access access,
                                                            emulator::Site site) {
  emulator::Thread& thread = emulated_thread();
  thread.api->operand(thread, begin, address, bytes, access, site);
}
__attribute__((noinline, cold)) static void emulated_refuse(const emulator::SharedArray* array,
                                                            u64 address, u32 bytes,
                                                            emulator::Access access,
                                                            emulator::Site site) {
  emulator::Thread& thread = emulated_thread();
  thread.api->shared(thread, array, address, bytes, access, site);
}

// Text that does not count contains no calls of these.
EMULATED_INLINE void emulated_count(emulator::Count counted, int operand, u64 address, u32 bytes,
                                    emulator::Site site) {
#if ANNEAL_COUNT
  emulator::Thread& thread = emulated_thread();
  thread.api->count_global(thread, counted, operand, address, bytes, site);
#endif
}
EMULATED_INLINE void emulated_count(emulator::Count counted, const emulator::SharedArray* array,
                                    u64 address, u32 bytes, emulator::Site site) {
#if ANNEAL_COUNT
  emulator::Thread& thread = emulated_thread();
  thread.api->count_shared(thread, counted, array, address, bytes, site);
#endif
}

// An index, and its source line.
struct EmulatedIndex {
  i64 value;
  emulator::Site site;
  EMULATED_INLINE EmulatedIndex(i64 i, emulator::Site at = emulator::Site::here())
      : value(i), site(at) {}
};

template <class T, emulator::Access access>
struct EmulatedOperand : emulator::Operand {
  template <class Element>
  EMULATED_INLINE Element* at(EmulatedIndex i, emulator::Count counted) const {
    Element* const element = find<Element>(i);
    emulated_count(counted, number, reinterpret_cast<u64>(element), sizeof(Element), i.site);
    return element;
  }
  // Without counting.
  template <class Element>
  EMULATED_INLINE Element* find(EmulatedIndex i) const {
    const u64 address = data + static_cast<u64>(i.value) * sizeof(T);
    const u64 offset = address - begin;
    bool good = offset < bytes;
    if constexpr (sizeof(Element) > sizeof(T))
      good = good && bytes - offset >= sizeof(Element) && address % alignof(Element) == 0;
    if (__builtin_expect(!good, 0))
      emulated_refuse(begin, address, sizeof(Element), access, i.site);
    return reinterpret_cast<Element*>(address);
  }
};
template <class T>
struct In : EmulatedOperand<T, emulator::Access::kRead> {
  EMULATED_INLINE T operator[](EmulatedIndex i) const {
    return *this->template at<const T>(i, emulator::Count::kGlobalLoad);
  }
  EMULATED_INLINE In operator+(i64 n) const {
    In moved = *this;
    moved.data += static_cast<u64>(n) * sizeof(T);
    return moved;
  }
};
template <class T>
struct Out : EmulatedOperand<T, emulator::Access::kWrite> {
  EMULATED_INLINE T& operator[](EmulatedIndex i) const {
    return *this->template at<T>(i, emulator::Count::kGlobalStore);
  }
  EMULATED_INLINE Out operator+(i64 n) const {
    Out moved = *this;
    moved.data += static_cast<u64>(n) * sizeof(T);
    return moved;
  }
};

// The value of s[i]: reads when it is converted, writes when it is assigned to. `auto x = s[i];` is
// refused when x is used, since it would read then.
template <class T>
struct EmulatedElement {
  T* at;
  const emulator::SharedArray* array;
  emulator::Site site;

  EMULATED_INLINE void see(emulator::Access access) const {
#if ANNEAL_CHECK_SHARED
    emulator::Thread& thread = emulated_thread();
    thread.api->shared(thread, array, reinterpret_cast<u64>(at), sizeof(T), access, site);
#endif
    constexpr emulator::Count kCounted[] = {emulator::Count::kSharedLoad,
                                            emulator::Count::kSharedStore,
                                            emulator::Count::kSharedAtomic};
    emulated_count(kCounted[static_cast<int>(access)], array, reinterpret_cast<u64>(at), sizeof(T),
                   site);
  }
  EMULATED_INLINE T read() const {
    see(emulator::Access::kRead);
    return *at;
  }
  EMULATED_INLINE void write(const T& value) const {
    see(emulator::Access::kWrite);
    *at = value;
  }
  EMULATED_INLINE operator T() && { return read(); }
  EMULATED_INLINE void operator=(const T& value) && { write(value); }
  EMULATED_INLINE void operator=(EmulatedElement&& other) && { write(other.read()); }
  EMULATED_INLINE void operator+=(const T& value) && { write(read() + value); }
  EMULATED_INLINE void operator-=(const T& value) && { write(read() - value); }
  EMULATED_INLINE void operator*=(const T& value) && { write(read() * value); }
};
template <class T>
struct SharedArray {
  u64 data, begin, bytes;
  const emulator::SharedArray* array;

  template <class Element>
  EMULATED_INLINE EmulatedElement<Element> at(EmulatedIndex i, emulator::Access access) const {
    const u64 address = data + static_cast<u64>(i.value) * sizeof(T);
    const u64 offset = address - begin;
    bool good = offset < bytes && bytes - offset >= sizeof(Element);
    if constexpr (sizeof(Element) > sizeof(T)) good = good && address % alignof(Element) == 0;
    if (__builtin_expect(!good, 0))
      emulated_refuse(array, address, sizeof(Element), access, i.site);
    return {reinterpret_cast<Element*>(address), array, i.site};
  }
  EMULATED_INLINE EmulatedElement<T> operator[](EmulatedIndex i) const {
    return at<T>(i, emulator::Access::kAtomic);  // which, is not known yet
  }
  EMULATED_INLINE SharedArray operator+(i64 n) const {
    return {data + static_cast<u64>(n) * sizeof(T), begin, bytes, array};
  }
};

template <class T>
inline SharedArray<T> emulated_shared(const void* key, u64 count, const char* name,
                                      emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  const emulator::SharedArray* array =
      thread.api->declare_shared(thread, key, count * sizeof(T), sizeof(T), name, site);
  return {array->begin, array->begin, array->bytes, array};
}
#define KERNEL(name, threads)               \
  constexpr int name##_threads = (threads); \
  static void name
#define SHARED(T, name, count)      \
  static const char name##_key = 0; \
  const SharedArray<T> name = emulated_shared<T>(&name##_key, count, #name)
#define DYNAMIC_SHARED(T, name) const SharedArray<T> name = emulated_shared<T>(nullptr, 0, #name)

template <int N, class T>
EMULATED_INLINE Vec<T, N> load(In<T> from, EmulatedIndex i) {
  return *from.template at<const Vec<T, N>>(i, emulator::Count::kGlobalLoad);
}
template <int N, class T>
EMULATED_INLINE Vec<T, N> load(Out<T> from, EmulatedIndex i) {
  return *from.template at<Vec<T, N>>(i, emulator::Count::kGlobalLoad);
}
template <int N, class T>
EMULATED_INLINE Vec<T, N> load(SharedArray<T> from, EmulatedIndex i) {
  return from.template at<Vec<T, N>>(i, emulator::Access::kRead).read();
}
template <int N, class T>
EMULATED_INLINE void store(Out<T> to, EmulatedIndex i, const Vec<T, N>& value) {
  *to.template at<Vec<T, N>>(i, emulator::Count::kGlobalStore) = value;
}
template <int N, class T>
EMULATED_INLINE void store(SharedArray<T> to, EmulatedIndex i, const Vec<T, N>& value) {
  to.template at<Vec<T, N>>(i, emulator::Access::kWrite).write(value);
}

// Blocks run one after another and a thread gives way at barriers only, so that reading and writing
// is atomic by itself.
template <class T>
EMULATED_INLINE T* emulated_atomic(Out<T> memory, EmulatedIndex i) {
  return memory.template at<T>(i, emulator::Count::kGlobalAtomic);
}
template <class T>
EMULATED_INLINE T* emulated_atomic(SharedArray<T> memory, EmulatedIndex i) {
  const EmulatedElement<T> element = memory.template at<T>(i, emulator::Access::kAtomic);
  element.see(emulator::Access::kAtomic);
  return element.at;
}
template <template <class> class Memory, class T>
inline T atomic_add(Memory<T> to, EmulatedIndex i, T value) {
  T* const at = emulated_atomic(to, i);
  const T old = *at;
  *at = old + value;
  return old;
}
template <template <class> class Memory, class T>
inline T atomic_max(Memory<T> to, EmulatedIndex i, T value) {
  T* const at = emulated_atomic(to, i);
  const T old = *at;
  if (old < value) *at = value;
  return old;
}
template <template <class> class Memory, class T>
inline T atomic_min(Memory<T> to, EmulatedIndex i, T value) {
  T* const at = emulated_atomic(to, i);
  const T old = *at;
  if (value < old) *at = value;
  return old;
}
template <template <class> class Memory, class T>
inline T atomic_cas(Memory<T> to, EmulatedIndex i, T compare, T value) {
  T* const at = emulated_atomic(to, i);
  const T old = *at;
  if (old == compare) *at = value;
  return old;
}

inline void __syncthreads(emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  thread.api->sync_threads(thread, site);
}
inline void __syncwarp(u32 mask = 0xffffffff, emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  thread.api->sync_warp(thread, mask, site);
}
template <class T>
inline T emulated_shuffle(emulator::Shuffle kind, u32 mask, T value, i32 operand, i32 width,
                          emulator::Site site) {
  static_assert(sizeof(T) <= 8, "4 or 8 bytes are shuffled");
  u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  emulator::Thread& thread = emulated_thread();
  bits = thread.api->shuffle(thread, kind, mask, bits, operand, width, site);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
inline T __shfl_sync(u32 mask, T value, i32 lane, i32 width = 32,
                     emulator::Site site = emulator::Site::here()) {
  return emulated_shuffle(emulator::Shuffle::kLane, mask, value, lane, width, site);
}
template <class T>
inline T __shfl_up_sync(u32 mask, T value, u32 delta, i32 width = 32,
                        emulator::Site site = emulator::Site::here()) {
  return emulated_shuffle(emulator::Shuffle::kUp, mask, value, static_cast<i32>(delta), width,
                          site);
}
template <class T>
inline T __shfl_down_sync(u32 mask, T value, u32 delta, i32 width = 32,
                          emulator::Site site = emulator::Site::here()) {
  return emulated_shuffle(emulator::Shuffle::kDown, mask, value, static_cast<i32>(delta), width,
                          site);
}
template <class T>
inline T __shfl_xor_sync(u32 mask, T value, i32 lanes, i32 width = 32,
                         emulator::Site site = emulator::Site::here()) {
  return emulated_shuffle(emulator::Shuffle::kXor, mask, value, lanes, width, site);
}
inline u32 __ballot_sync(u32 mask, i32 vote, emulator::Site site = emulator::Site::here()) {
  emulator::Thread& thread = emulated_thread();
  return thread.api->ballot(thread, mask, vote != 0, site);
}
inline i32 __any_sync(u32 mask, i32 vote, emulator::Site site = emulator::Site::here()) {
  return __ballot_sync(mask, vote, site) != 0;
}
inline i32 __all_sync(u32 mask, i32 vote, emulator::Site site = emulator::Site::here()) {
  return __ballot_sync(mask, vote == 0, site) == 0;
}

// Bit for bit as on a card: NaN becomes 0x7fff.
EMULATED_INLINE u32 emulated_bits(f32 x) { return __builtin_bit_cast(u32, x); }
EMULATED_INLINE f32 emulated_f32(u32 x) { return __builtin_bit_cast(f32, x); }
inline f32 to_f32(h16 x) {
  const u32 wide = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
  if (wide >= 0x0f800000u) return emulated_f32(wide | sign | 0x7f800000u);
  return emulated_f32(emulated_bits(emulated_f32(wide) * 0x1p112f) | sign);
}
EMULATED_INLINE f32 to_f32(bf16 x) { return emulated_f32(static_cast<u32>(x.bits) << 16); }
inline h16 to_h16(f32 x) {
  const u32 sign = emulated_bits(x) >> 16 & 0x8000u, size = emulated_bits(x) & 0x7fffffffu;
  if (size > 0x7f800000u) return {0x7fff};
  if (size >= 0x47800000u) return {static_cast<u16>(sign | 0x7c00u)};
  if (size < 0x38800000u) {  // adding 0.5 rounds to a multiple of the smallest half
    const u32 rounded = emulated_bits(emulated_f32(size) + 0.5f) - emulated_bits(0.5f);
    return {static_cast<u16>(sign | rounded)};
  }
  return {static_cast<u16>(sign | ((size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13))};
}
inline h16 to_h16(f64 x) {
  // To f32 with the last bit set if anything is lost, so that the second rounding is the only one.
  f32 y = static_cast<f32>(x);
  const f64 back = y;
  const u32 bits = emulated_bits(y);
  if (back != x && (bits & 1) == 0 && (bits & 0x7fffffffu) < 0x7f800000u)
    y = emulated_f32(__builtin_fabs(back) > __builtin_fabs(x) ? bits - 1 : bits + 1);
  return to_h16(y);
}
inline bf16 to_bf16(f32 x) {
  const u32 bits = emulated_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

// Functions of C's library that have CUDA's names.
#define EMULATED_FUNCTION(name)         \
  extern "C" f32 name##f(f32) noexcept; \
  extern "C" f64 name(f64) noexcept;
#define EMULATED_FUNCTION_OF_TWO(name)       \
  extern "C" f32 name##f(f32, f32) noexcept; \
  extern "C" f64 name(f64, f64) noexcept;
EMULATED_FUNCTION(acos)
EMULATED_FUNCTION(acosh)
EMULATED_FUNCTION(asin)
EMULATED_FUNCTION(asinh)
EMULATED_FUNCTION(atan)
EMULATED_FUNCTION(atanh)
EMULATED_FUNCTION(cbrt)
EMULATED_FUNCTION(ceil)
EMULATED_FUNCTION(cos)
EMULATED_FUNCTION(cosh)
EMULATED_FUNCTION(erf)
EMULATED_FUNCTION(erfc)
EMULATED_FUNCTION(exp)
EMULATED_FUNCTION(exp2)
EMULATED_FUNCTION(expm1)
EMULATED_FUNCTION(fabs)
EMULATED_FUNCTION(floor)
EMULATED_FUNCTION(log)
EMULATED_FUNCTION(log10)
EMULATED_FUNCTION(log1p)
EMULATED_FUNCTION(log2)
EMULATED_FUNCTION(nearbyint)
EMULATED_FUNCTION(rint)
EMULATED_FUNCTION(round)
EMULATED_FUNCTION(sin)
EMULATED_FUNCTION(sinh)
EMULATED_FUNCTION(sqrt)
EMULATED_FUNCTION(tan)
EMULATED_FUNCTION(tanh)
EMULATED_FUNCTION(trunc)
EMULATED_FUNCTION_OF_TWO(atan2)
EMULATED_FUNCTION_OF_TWO(copysign)
EMULATED_FUNCTION_OF_TWO(fmax)
EMULATED_FUNCTION_OF_TWO(fmin)
EMULATED_FUNCTION_OF_TWO(fmod)
EMULATED_FUNCTION_OF_TWO(pow)
EMULATED_FUNCTION_OF_TWO(remainder)
#undef EMULATED_FUNCTION
#undef EMULATED_FUNCTION_OF_TWO
EMULATED_INLINE f32 reciprocal(f32 x) { return 1 / x; }
EMULATED_INLINE f32 fmaf(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
EMULATED_INLINE f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
EMULATED_INLINE f32 __fadd_rn(f32 a, f32 b) { return a + b; }
EMULATED_INLINE f32 __fmul_rn(f32 a, f32 b) { return a * b; }
EMULATED_INLINE f32 __fdiv_rn(f32 a, f32 b) { return a / b; }
EMULATED_INLINE f32 __fmaf_rn(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
EMULATED_INLINE f32 __uint_as_float(u32 x) { return emulated_f32(x); }
EMULATED_INLINE u32 __float_as_uint(f32 x) { return emulated_bits(x); }
EMULATED_INLINE f32 __int_as_float(i32 x) { return __builtin_bit_cast(f32, x); }
EMULATED_INLINE i32 __float_as_int(f32 x) { return __builtin_bit_cast(i32, x); }
EMULATED_INLINE i32 __popc(u32 x) { return __builtin_popcount(x); }
EMULATED_INLINE i32 __clz(i32 x) { return x == 0 ? 32 : __builtin_clz(static_cast<u32>(x)); }
EMULATED_INLINE i32 __ffs(i32 x) { return __builtin_ffs(x); }
inline i32 __dp4a(i32 a, i32 b, i32 c) {
  u32 sum = static_cast<u32>(c);
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<u32>(static_cast<i8>(a >> i) * static_cast<i8>(b >> i));
  return static_cast<i32>(sum);
}

// The expansion of EXPORT(name), which follows a function's text for the host compiler.
template <class P>
struct EmulatedParameter {
  static_assert(sizeof(P) <= 8, "parameters are operands and numbers");
  static constexpr u32 kBytes = sizeof(P), kElement = 0;
  EMULATED_INLINE static const P& of(const emulator::Operand& given) {
    return *reinterpret_cast<const P*>(&given.data);
  }
};
template <class P, class T>
struct EmulatedOperandParameter {
  static_assert(sizeof(P) == sizeof(emulator::Operand), "an operand and nothing else");
  static constexpr u32 kBytes = 8, kElement = sizeof(T);
  EMULATED_INLINE static const P& of(const emulator::Operand& given) {
    return static_cast<const P&>(given);
  }
};
template <class T>
struct EmulatedParameter<In<T>> : EmulatedOperandParameter<In<T>, T> {};
template <class T>
struct EmulatedParameter<Out<T>> : EmulatedOperandParameter<Out<T>, T> {};
template <class... P>
struct EmulatedCall {
  EMULATED_INLINE EmulatedCall(void (*function)(P...), P... parameters) { function(parameters...); }
};
template <class... P>
struct EmulatedParameters {
  static constexpr u32 kBytes[] = {EmulatedParameter<P>::kBytes..., 0};
  static constexpr u32 kElements[] = {EmulatedParameter<P>::kElement..., 0};
  static constexpr int kCount = sizeof...(P);
  template <void (*function)(P...)>
  static void call(const emulator::Operand* given) {
    EmulatedCall<P...>{function, EmulatedParameter<P>::of(*given++)...};
  }
};
template <class... P>
EmulatedParameters<P...> emulated_parameters(void (*)(P...));
#define EXPORT(name)                                                                \
  extern "C" {                                                                      \
  __attribute__((visibility("default"))) extern const emulator::Entry name##_entry; \
  }                                                                                 \
  const emulator::Entry name##_entry = {                                            \
      of_##name::name##_threads,                                                    \
      ANNEAL_CHECK_SHARED != 0,                                                     \
      ANNEAL_COUNT != 0,                                                            \
      decltype(emulated_parameters(of_##name::name))::kCount,                       \
      decltype(emulated_parameters(of_##name::name))::kBytes,                       \
      decltype(emulated_parameters(of_##name::name))::kElements,                    \
      decltype(emulated_parameters(of_##name::name))::template call<of_##name::name>};
