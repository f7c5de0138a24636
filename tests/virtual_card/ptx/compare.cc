// Comparisons, selections and arithmetic of predicates.
#include <cmath>

#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/lanes.h"

namespace anneal::ptx {
namespace {

template <class T, class F>
void compare(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.at[1]);
  const T* const b = warp.read<T>(instruction.at[2]);
  uint32_t lanes = 0;
  for (int i = 0; i < kLanes; ++i) lanes |= uint32_t{F()(a[i], b[i])} << i;
  warp.set_predicate(instruction.at[0], lanes);
}

enum class Join : uint8_t { kAnd, kOr, kXor };
// "false and x" has a value, whatever x has; a and b: what the operands are, and where they have
// values.
template <Join join>
void find_without_value(Warp& warp, uint32_t a, uint32_t has_a, uint32_t b, uint32_t has_b) {
  if (warp.without_value() == 0) return;
  uint32_t has_value = has_a & has_b;
  if (join == Join::kAnd) has_value |= (has_a & ~a) | (has_b & ~b);
  if (join == Join::kOr) has_value |= (has_a & a) | (has_b & b);
  warp.set_without_value(~has_value);
}
template <Join join>
uint32_t joined(uint32_t a, uint32_t b) {
  return join == Join::kAnd ? a & b : join == Join::kOr ? a | b : a ^ b;
}
template <class T, class F, Join join>
void compare_and_join(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.at[1]);
  const T* const b = warp.read<T>(instruction.at[2]);
  const uint32_t other =
      warp.predicate(instruction.at[3]) ^ (instruction.parameters[0] != 0 ? kAllLanes : 0);
  uint32_t lanes = 0;
  for (int i = 0; i < kLanes; ++i) lanes |= uint32_t{F()(a[i], b[i])} << i;
  find_without_value<join>(
      warp, lanes, warp.lanes_with_value(instruction, 1) & warp.lanes_with_value(instruction, 2),
      other, warp.lanes_with_value(instruction, 3));
  warp.set_predicate(instruction.at[0], joined<join>(lanes, other));
}

struct Eq {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
// Ordered: false if either is NaN.
struct Ne {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Lt {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
template <class F>
struct OrNan {
  template <class T>
  bool operator()(T a, T b) const {
    return std::isnan(a) || std::isnan(b) || F()(a, b);
  }
};
struct IsNan {
  template <class T>
  bool operator()(T a, T b) const {
    return std::isnan(a) || std::isnan(b);
  }
};
struct IsNumber {
  template <class T>
  bool operator()(T a, T b) const {
    return !std::isnan(a) && !std::isnan(b);
  }
};

template <class T>
void select(Warp& warp, const Instruction& instruction) {
  const uint32_t first = warp.predicate(instruction.at[3]);
  const T* const a = warp.read<T>(instruction.at[1]);
  const T* const b = warp.read<T>(instruction.at[2]);
  if (warp.without_value() != 0)
    warp.set_without_value(~(warp.lanes_with_value(instruction, 3) &
                             ((first & warp.lanes_with_value(instruction, 1)) |
                              (~first & warp.lanes_with_value(instruction, 2)))));
  T result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = (first >> i & 1) != 0 ? a[i] : b[i];
  warp.write(instruction.at[0], result);
}

uint32_t operand(Warp& warp, const Instruction& instruction, size_t i) {
  return warp.predicate(instruction.at[i]) ^ (instruction.parameters[i - 1] != 0 ? kAllLanes : 0);
}
template <Join join>
void join_predicates(Warp& warp, const Instruction& i) {
  const uint32_t a = operand(warp, i, 1), b = operand(warp, i, 2);
  find_without_value<join>(warp, a, warp.lanes_with_value(i, 1), b, warp.lanes_with_value(i, 2));
  warp.set_predicate(i.at[0], joined<join>(a, b));
}
void not_predicate(Warp& warp, const Instruction& i) {
  warp.set_predicate(i.at[0], ~operand(warp, i, 1));
}
void move_predicate(Warp& warp, const Instruction& i) {
  warp.set_predicate(i.at[0], operand(warp, i, 1));
}

#define COMPARE(word, F, name, T, r)                                                 \
  {"setp." word "." name, compare<T, F>, "p=" r r},                                  \
      {"setp." word ".and." name, compare_and_join<T, F, Join::kAnd>, "p=" r r "c"}, \
      {"setp." word ".or." name, compare_and_join<T, F, Join::kOr>, "p=" r r "c"}, { \
    "setp." word ".xor." name, compare_and_join<T, F, Join::kXor>, "p=" r r "c"      \
  }
#define COMPARE_ALL(name, T, r)                                                                \
  COMPARE("eq", Eq, name, T, r), COMPARE("ne", Ne, name, T, r), COMPARE("lt", Lt, name, T, r), \
      COMPARE("le", Le, name, T, r), COMPARE("gt", Gt, name, T, r), COMPARE("ge", Ge, name, T, r)
#define COMPARE_BITS(name, T, r) COMPARE("eq", Eq, name, T, r), COMPARE("ne", Ne, name, T, r)
#define COMPARE_FLOATS(name, T, r)                                                  \
  COMPARE_ALL(name, T, r), COMPARE("equ", OrNan<Eq>, name, T, r),                   \
      COMPARE("neu", OrNan<Ne>, name, T, r), COMPARE("ltu", OrNan<Lt>, name, T, r), \
      COMPARE("leu", OrNan<Le>, name, T, r), COMPARE("gtu", OrNan<Gt>, name, T, r), \
      COMPARE("geu", OrNan<Ge>, name, T, r), COMPARE("nan", IsNan, name, T, r),     \
      COMPARE("num", IsNumber, name, T, r)

constexpr Entry kEntries[] = {
    COMPARE_ALL("s16", int16_t, "h"),
    COMPARE_ALL("u16", uint16_t, "h"),
    COMPARE_ALL("s32", int32_t, "w"),
    COMPARE_ALL("u32", uint32_t, "w"),
    COMPARE_ALL("s64", int64_t, "d"),
    COMPARE_ALL("u64", uint64_t, "d"),
    COMPARE_BITS("b16", uint16_t, "h"),
    COMPARE_BITS("b32", uint32_t, "w"),
    COMPARE_BITS("b64", uint64_t, "d"),
    COMPARE_FLOATS("f32", float, "w"),
    COMPARE_FLOATS("f64", double, "d"),
    {"selp.b16", select<uint16_t>, "h=hhp"},
    {"selp.u16", select<uint16_t>, "h=hhp"},
    {"selp.s16", select<uint16_t>, "h=hhp"},
    {"selp.b32", select<uint32_t>, "w=wwp"},
    {"selp.u32", select<uint32_t>, "w=wwp"},
    {"selp.s32", select<uint32_t>, "w=wwp"},
    {"selp.f32", select<uint32_t>, "w=wwp"},
    {"selp.b64", select<uint64_t>, "d=ddp"},
    {"selp.u64", select<uint64_t>, "d=ddp"},
    {"selp.s64", select<uint64_t>, "d=ddp"},
    {"selp.f64", select<uint64_t>, "d=ddp"},
    {"and.pred", join_predicates<Join::kAnd>, "p=cc"},
    {"or.pred", join_predicates<Join::kOr>, "p=cc"},
    {"xor.pred", join_predicates<Join::kXor>, "p=cc"},
    {"not.pred", not_predicate, "p=c"},
    {"mov.pred", move_predicate, "p=c"},
};

}  // namespace

std::span<const Entry> compare_entries() { return kEntries; }

}  // namespace anneal::ptx
