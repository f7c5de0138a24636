// Integer arithmetic, bits and shifts.
#include <algorithm>

#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/lanes.h"

namespace anneal::ptx {
namespace {

// Arithmetic wraps, so it is done without a sign.
template <class T>
using Bits = std::make_unsigned_t<T>;
template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
struct Add {
  T operator()(T a, T b) const { return static_cast<T>(Bits<T>(a) + Bits<T>(b)); }
};
template <class T>
struct Sub {
  T operator()(T a, T b) const { return static_cast<T>(Bits<T>(a) - Bits<T>(b)); }
};
template <class T>
struct MulLow {
  T operator()(T a, T b) const { return static_cast<T>(uint64_t(Bits<T>(a)) * Bits<T>(b)); }
};
template <class T>
struct MulHigh {
  T operator()(T a, T b) const {
    return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
template <class T>
struct MulWide {
  Wide<T> operator()(T a, T b) const { return Wide<T>(a) * Wide<T>(b); }
};
template <class T>
struct MadLow {
  T operator()(T a, T b, T c) const { return Add<T>()(MulLow<T>()(a, b), c); }
};
template <class T>
struct MadWide {
  Wide<T> operator()(T a, T b, Wide<T> c) const { return Add<Wide<T>>()(MulWide<T>()(a, b), c); }
};
// By zero: all bits, as cards do; the manual leaves it open.
template <class T>
struct Div {
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~Bits<T>(0));
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub<T>()(0, a);
    return static_cast<T>(a / b);
  }
};
template <class T>
struct Rem {
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
template <class T>
struct Min {
  T operator()(T a, T b) const { return std::min(a, b); }
};
template <class T>
struct Max {
  T operator()(T a, T b) const { return std::max(a, b); }
};
template <class T>
struct Abs {
  T operator()(T a) const { return a < 0 ? Sub<T>()(0, a) : a; }
};
template <class T>
struct Neg {
  T operator()(T a) const { return Sub<T>()(0, a); }
};
template <class T>
struct And {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct Or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct Xor {
  T operator()(T a, T b) const { return a ^ b; }
};
template <class T>
struct Not {
  T operator()(T a) const { return static_cast<T>(~a); }
};
// Amounts above the width count as the width.
template <class T>
struct Shl {
  T operator()(T a, uint32_t by) const {
    return by >= 8 * sizeof(T) ? T(0) : static_cast<T>(Bits<T>(a) << by);
  }
};
template <class T>
struct Shr {
  T operator()(T a, uint32_t by) const {
    constexpr uint32_t kMost = 8 * sizeof(T) - 1;
    if (by > kMost && !std::is_signed_v<T>) return 0;
    return static_cast<T>(a >> std::min(by, kMost));
  }
};

// Byte i of the result is byte `selector nibble i` of b:a; with the nibble's high bit, its sign.
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t nibble = selector >> 4 * i & 0xf;
      auto byte = static_cast<uint32_t>(bytes >> 8 * (nibble & 7)) & 0xff;
      if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << 8 * i;
    }
    return result;
  }
};

// A byte of the result has a value if the one that it was has.
void permute(Warp& warp, const Instruction& instruction) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t, Permute>(warp, instruction);
  if (warp.without_value() == 0) return;
  const auto a = warp.bytes_without_value(instruction, 1),
             b = warp.bytes_without_value(instruction, 2),
             selector = warp.bytes_without_value(instruction, 3);
  const auto* const selectors = warp.read<uint32_t>(instruction.at[3]);
  Warp::Bytes result = {};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t both = (b[lane] & 0xfu) << 4 | (a[lane] & 0xfu);
    for (uint32_t i = 0; i < 4; ++i)
      if ((selector[lane] & 3) != 0 || (both >> (selectors[lane] >> 4 * i & 7) & 1) != 0)
        result[lane] |= static_cast<uint8_t>(1u << i);
  }
  warp.set_bytes_without_value(result);
}

// Each bit of the result is the bit of the table whose number the bits of a, b and c are, that of a
// first.
void look_up_bits(Warp& warp, const Instruction& instruction) {
  const auto* const a = warp.read<uint32_t>(instruction.at[1]);
  const auto* const b = warp.read<uint32_t>(instruction.at[2]);
  const auto* const c = warp.read<uint32_t>(instruction.at[3]);
  const auto* const table = warp.read<uint32_t>(instruction.at[4]);
  uint32_t result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    result[i] = 0;
    for (uint32_t number = 0; number < 8; ++number)
      if ((table[i] >> number & 1) != 0)
        result[i] |= ((number & 4) != 0 ? a[i] : ~a[i]) & ((number & 2) != 0 ? b[i] : ~b[i]) &
                     ((number & 1) != 0 ? c[i] : ~c[i]);
  }
  warp.write(instruction.at[0], result);
}

// The low bits of a into b.
template <class T>
void insert_bits(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.at[1]);
  const T* const b = warp.read<T>(instruction.at[2]);
  const auto* const at = warp.read<uint32_t>(instruction.at[3]);
  const auto* const length = warp.read<uint32_t>(instruction.at[4]);
  T result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t from = at[i] & 0xff, bits = length[i] & 0xff;
    const T ones = bits >= 8 * sizeof(T) ? ~T(0) : (T(1) << bits) - 1;
    const T mask = from >= 8 * sizeof(T) ? T(0) : static_cast<T>(ones << from);
    const T moved = from >= 8 * sizeof(T) ? T(0) : static_cast<T>(a[i] << from);
    result[i] = (b[i] & ~mask) | (moved & mask);
  }
  warp.write(instruction.at[0], result);
}

template <class T>
void extract_bits(Warp& warp, const Instruction& instruction) {
  using U = Bits<T>;
  const T* const a = warp.read<T>(instruction.at[1]);
  const auto* const at = warp.read<uint32_t>(instruction.at[2]);
  const auto* const length = warp.read<uint32_t>(instruction.at[3]);
  constexpr uint32_t kWidth = 8 * sizeof(T);
  T result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t from = at[i] & 0xff, bits = length[i] & 0xff;
    U value = from >= kWidth ? 0 : U(a[i]) >> from;
    const U ones = bits >= kWidth ? ~U(0) : (U(1) << bits) - 1;
    value &= ones;
    const uint32_t last = std::min(from + bits - 1, kWidth - 1);
    if (std::is_signed_v<T> && bits != 0 && (U(a[i]) >> last & 1) != 0) value |= ~ones;
    result[i] = static_cast<T>(value);
  }
  warp.write(instruction.at[0], result);
}

template <class T>
struct LeadingZeros {
  uint32_t operator()(T a) const { return static_cast<uint32_t>(std::countl_zero(a)); }
};
template <class T>
struct Ones {
  uint32_t operator()(T a) const { return static_cast<uint32_t>(std::popcount(a)); }
};

// A word of the 64 bits of b and a, a being the lower half, moved by c: modulo 32, or by 32 at
// most.
template <bool is_left, bool wraps>
struct FunnelShift {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    const uint32_t by = wraps ? c & 31 : std::min(c, 32u);
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(is_left ? both << by >> 32 : both >> by);
  }
};

// c plus the products of the elements of a, of 16 or 8 bits, and bytes of b.
template <class A, class B, int first>
struct Dp2a {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int i = 0; i < 2; ++i)
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 16 * i)} *
                                 int32_t{static_cast<B>(b >> 8 * (first + i))});
    return c;
  }
};
// Two bytes of b are used.
template <class A, class B, int first>
void dot_two(Warp& warp, const Instruction& instruction) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t, Dp2a<A, B, first>>(warp, instruction);
  if (warp.without_value() == 0) return;
  const auto b = warp.bytes_without_value(instruction, 2);
  uint32_t lanes = ~(warp.lanes_with_value(instruction, 1) & warp.lanes_with_value(instruction, 3));
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    lanes |= uint32_t{(b[lane] >> first & 3) != 0} << lane;
  warp.set_without_value(lanes);
}
template <class A, class B>
struct Dp4a {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int i = 0; i < 4; ++i)
      c += static_cast<uint32_t>(int32_t{static_cast<A>(a >> 8 * i)} *
                                 int32_t{static_cast<B>(b >> 8 * i)});
    return c;
  }
};

#define ARITHMETIC(name, T, r, wide)                                 \
  {"add." name, binary<T, T, T, Add<T>>, r "=" r r},                 \
      {"sub." name, binary<T, T, T, Sub<T>>, r "=" r r},             \
      {"mul.lo." name, binary<T, T, T, MulLow<T>>, r "=" r r},       \
      {"mul.hi." name, binary<T, T, T, MulHigh<T>>, r "=" r r},      \
      {"mad.lo." name, ternary<T, T, T, T, MadLow<T>>, r "=" r r r}, \
      {"div." name, binary<T, T, T, Div<T>>, r "=" r r},             \
      {"rem." name, binary<T, T, T, Rem<T>>, r "=" r r},             \
      {"min." name, binary<T, T, T, Min<T>>, r "=" r r},             \
      {"max." name, binary<T, T, T, Max<T>>, r "=" r r}, {           \
    "shr." name, binary<T, T, uint32_t, Shr<T>>, r "=" r "w"         \
  }
#define WIDE(name, T, r, wide)                                                       \
  {"mul.wide." name, binary<Wide<T>, T, T, MulWide<T>>, wide "=" r r}, {             \
    "mad.wide." name, ternary<Wide<T>, T, T, Wide<T>, MadWide<T>>, wide "=" r r wide \
  }
#define SIGNED(name, T, r) \
  {"abs." name, unary<T, T, Abs<T>>, r "=" r}, { "neg." name, unary<T, T, Neg<T>>, r "=" r }
#define DOT(a, A16, A8, b, B)                                                              \
  {"dp2a.lo." a "." b, dot_two<A16, B, 0>, "w=www"},                                       \
      {"dp2a.hi." a "." b, dot_two<A16, B, 2>, "w=www"}, {                                 \
    "dp4a." a "." b, ternary<uint32_t, uint32_t, uint32_t, uint32_t, Dp4a<A8, B>>, "w=www" \
  }
#define BITS(name, T, r)                                            \
  {"and." name, binary<T, T, T, And<T>>, r "=" r r},                \
      {"or." name, binary<T, T, T, Or<T>>, r "=" r r},              \
      {"xor." name, binary<T, T, T, Xor<T>>, r "=" r r},            \
      {"not." name, unary<T, T, Not<T>>, r "=" r},                  \
      {"shl." name, binary<T, T, uint32_t, Shl<T>>, r "=" r "w"}, { \
    "shr." name, binary<T, T, uint32_t, Shr<T>>, r "=" r "w"        \
  }

#define FUNNEL(name, is_left, wraps)                                                          \
  {                                                                                           \
    "shf." name ".b32",                                                                       \
        ternary<uint32_t, uint32_t, uint32_t, uint32_t, FunnelShift<is_left, wraps>>, "w=www" \
  }

constexpr Entry kEntries[] = {
    ARITHMETIC("s16", int16_t, "h", "w"),
    ARITHMETIC("u16", uint16_t, "h", "w"),
    ARITHMETIC("s32", int32_t, "w", "d"),
    ARITHMETIC("u32", uint32_t, "w", "d"),
    ARITHMETIC("s64", int64_t, "d", ""),
    ARITHMETIC("u64", uint64_t, "d", ""),
    WIDE("s16", int16_t, "h", "w"),
    WIDE("u16", uint16_t, "h", "w"),
    WIDE("s32", int32_t, "w", "d"),
    WIDE("u32", uint32_t, "w", "d"),
    SIGNED("s16", int16_t, "h"),
    SIGNED("s32", int32_t, "w"),
    SIGNED("s64", int64_t, "d"),
    BITS("b16", uint16_t, "h"),
    BITS("b32", uint32_t, "w"),
    BITS("b64", uint64_t, "d"),
    DOT("s32", int16_t, int8_t, "s32", int8_t),
    DOT("u32", uint16_t, uint8_t, "s32", int8_t),
    DOT("s32", int16_t, int8_t, "u32", uint8_t),
    DOT("u32", uint16_t, uint8_t, "u32", uint8_t),
    {"clz.b32", unary<uint32_t, uint32_t, LeadingZeros<uint32_t>>, "w=w"},
    {"clz.b64", unary<uint32_t, uint64_t, LeadingZeros<uint64_t>>, "w=d"},
    {"popc.b32", unary<uint32_t, uint32_t, Ones<uint32_t>>, "w=w"},
    {"popc.b64", unary<uint32_t, uint64_t, Ones<uint64_t>>, "w=d"},
    FUNNEL("l.wrap", true, true),
    FUNNEL("l.clamp", true, false),
    FUNNEL("r.wrap", false, true),
    FUNNEL("r.clamp", false, false),
    {"prmt.b32", permute, "w=www"},
    {"lop3.b32", look_up_bits, "w=wwww"},
    {"bfi.b32", insert_bits<uint32_t>, "w=wwww"},
    {"bfi.b64", insert_bits<uint64_t>, "d=ddww"},
    {"bfe.u32", extract_bits<uint32_t>, "w=www"},
    {"bfe.s32", extract_bits<int32_t>, "w=www"},
    {"bfe.u64", extract_bits<uint64_t>, "d=dww"},
    {"bfe.s64", extract_bits<int64_t>, "d=dww"},
};

}  // namespace

std::span<const Entry> integer_entries() { return kEntries; }

}  // namespace anneal::ptx
