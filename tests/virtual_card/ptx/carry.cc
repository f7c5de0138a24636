// Integers of several words: sums, differences and products that take or leave a carry.
#include "anneal/tests/virtual_card/ptx/entries.h"

namespace anneal::ptx {
namespace {

enum class Carried : uint8_t { kAdd, kSub, kLow, kHigh };  // the last two: of a product, plus c

template <class T>
T high_half(T a, T b) {
  using Wide = std::conditional_t<sizeof(T) == 4, uint64_t, unsigned __int128>;
  return static_cast<T>((Wide{a} * b) >> (8 * sizeof(T)));
}
// Signed factors: less what their signs have added to the product of the bits.
template <class T, bool is_signed>
T high_half_of(T a, T b) {
  T high = high_half(a, b);
  constexpr int kSign = 8 * sizeof(T) - 1;
  if (is_signed && a >> kSign != 0) high -= b;
  if (is_signed && b >> kSign != 0) high -= a;
  return high;
}

template <class T, Carried operation, bool takes, bool leaves, bool is_signed = false>
void carried(Warp& warp, const Instruction& instruction) {
  constexpr bool kIsProduct = operation == Carried::kLow || operation == Carried::kHigh;
  const T* const a = warp.read<T>(instruction.at[1]);
  const T* const b = warp.read<T>(instruction.at[2]);
  const T* const c = kIsProduct ? warp.read<T>(instruction.at[3]) : nullptr;
  T result[kLanes];
  uint32_t carries = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const T carry = takes ? warp.carries() >> i & 1 : 0;
    T left = a[i], right = b[i];
    if (kIsProduct) {
      left = operation == Carried::kLow ? a[i] * b[i] : high_half_of<T, is_signed>(a[i], b[i]);
      right = c[i];
    }
    bool leaves_one = false;
    if (operation == Carried::kSub) {
      result[i] = left - right - carry;
      leaves_one = left < right || (carry != 0 && left == right);
    } else {
      result[i] = left + right + carry;
      leaves_one = result[i] < left || (carry != 0 && result[i] == left);
    }
    carries |= uint32_t{leaves_one} << i;
  }
  if (leaves) warp.set_carries(carries);
  warp.write(instruction.at[0], result);
}

#define SUMS(type, T, r)                                                   \
  {"add.cc." type, carried<T, Carried::kAdd, false, true>, r "=" r r},     \
      {"addc." type, carried<T, Carried::kAdd, true, false>, r "=" r r},   \
      {"addc.cc." type, carried<T, Carried::kAdd, true, true>, r "=" r r}, \
      {"sub.cc." type, carried<T, Carried::kSub, false, true>, r "=" r r}, \
      {"subc." type, carried<T, Carried::kSub, true, false>, r "=" r r}, { \
    "subc.cc." type, carried<T, Carried::kSub, true, true>, r "=" r r      \
  }
#define PRODUCTS(half, which, type, T, r, is_signed)                                     \
  {"mad." half ".cc." type, carried<T, which, false, true, is_signed>, r "=" r r r},     \
      {"madc." half "." type, carried<T, which, true, false, is_signed>, r "=" r r r}, { \
    "madc." half ".cc." type, carried<T, which, true, true, is_signed>, r "=" r r r      \
  }
#define ALL(type, T, r, is_signed)                                        \
  SUMS(type, T, r), PRODUCTS("lo", Carried::kLow, type, T, r, is_signed), \
      PRODUCTS("hi", Carried::kHigh, type, T, r, is_signed)

constexpr Entry kEntries[] = {
    ALL("u32", uint32_t, "w", false),
    ALL("s32", uint32_t, "w", true),
    ALL("u64", uint64_t, "d", false),
    ALL("s64", uint64_t, "d", true),
};

}  // namespace

std::span<const Entry> carry_entries() { return kEntries; }

}  // namespace anneal::ptx
