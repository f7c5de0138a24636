// Atomic operations. Lanes of a warp do them one after the other, in ascending order.
#include <algorithm>
#include <cmath>
#include <functional>

#include "anneal/tests/virtual_card/ptx/access.h"

namespace anneal::ptx {
namespace {

enum Operation : uint8_t {
  kAdd,
  kMin,
  kMax,
  kIncrease,
  kDecrease,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare,
  kOperations
};
constexpr std::string_view kOperationNames[] = {"add", "min", "max", "inc",  "dec",
                                                "and", "or",  "xor", "exch", "cas"};
static_assert(std::size(kOperationNames) == kOperations);

enum Type : uint8_t { kU32, kS32, kB32, kU64, kS64, kB64, kF32, kF64, kTypes };
constexpr std::string_view kTypeNames[] = {"u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64"};
static_assert(std::size(kTypeNames) == kTypes);

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

template <class T>
T integer_result(Operation operation, T old, T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  switch (operation) {
    case kAdd:
      return static_cast<T>(Bits(old) + Bits(a));
    case kMin:
      return std::min(old, a);
    case kMax:
      return std::max(old, a);
    case kIncrease:
      return old >= a ? T(0) : static_cast<T>(old + 1);
    case kDecrease:
      return old == 0 || old > a ? a : static_cast<T>(old - 1);
    case kAnd:
      return old & a;
    case kOr:
      return old | a;
    case kXor:
      return old ^ a;
    case kExchange:
      return a;
    case kCompare:
      return old == a ? b : old;
    case kOperations:
      break;
  }
  return old;
}

template <class T, class Result>
void update(std::byte* memory, uint64_t a, uint64_t b, uint64_t* before, Result result) {
  T old, first, second;
  std::memcpy(&old, memory, sizeof(T));
  std::memcpy(&first, &a, sizeof(T));
  std::memcpy(&second, &b, sizeof(T));
  const T made = result(old, first, second);
  std::memcpy(memory, &made, sizeof(T));
  *before = 0;
  std::memcpy(before, &old, sizeof(T));
}

// The memory's value before, in *before.
void update(Operation operation, Type type, bool is_shared, std::byte* memory, uint64_t a,
            uint64_t b, uint64_t* before) {
  const auto integers = [operation](auto old, auto first, auto second) {
    return integer_result(operation, old, first, second);
  };
  switch (type) {
    case kU32:
    case kB32:
      return update<uint32_t>(memory, a, b, before, integers);
    case kS32:
      return update<int32_t>(memory, a, b, before, integers);
    case kU64:
    case kB64:
      return update<uint64_t>(memory, a, b, before, integers);
    case kS64:
      return update<int64_t>(memory, a, b, before, integers);
    case kF32:
      // In global memory subnormal numbers become 0.
      return update<float>(memory, a, b, before, [&](float old, float first, float) {
        return is_shared ? old + first : flushed(flushed(old) + flushed(first));
      });
    case kF64:
      return update<double>(memory, a, b, before,
                            [](double old, double first, double) { return old + first; });
    case kTypes:
      break;
  }
}

uint64_t value_of(const Warp& warp, Place place, size_t bytes, uint32_t lane) {
  return bytes == 8 ? warp.read<uint64_t>(place)[lane] : warp.read<uint32_t>(place)[lane];
}

}  // namespace

AtomicType atomic_type(std::string_view word) {
  const auto* const found = std::ranges::find(kTypeNames, word);
  if (found == std::end(kTypeNames)) return {};
  return {static_cast<uint8_t>(found - kTypeNames), static_cast<uint8_t>(word[1] == '6' ? 8 : 4)};
}

int atomic_operation(std::string_view word) {
  const auto* const found = std::ranges::find(kOperationNames, word);
  return found == std::end(kOperationNames) ? -1 : static_cast<int>(found - kOperationNames);
}

bool is_atomic_allowed(int operation, AtomicType type) {
  switch (operation) {
    case kAdd:
      return type.number != kB32 && type.number != kB64;
    case kMin:
    case kMax:
      return type.number == kU32 || type.number == kS32 || type.number == kU64 ||
             type.number == kS64;
    case kIncrease:
    case kDecrease:
      return type.number == kU32;
    default:
      return type.number == kB32 || type.number == kB64;
  }
}

void update_memory(Warp& warp, const Instruction& instruction) {
  const auto operation = static_cast<Operation>(instruction.parameters[0]);
  const auto type = static_cast<Type>(instruction.parameters[1]);
  const bool is_shared = (instruction.parameters[2] & 1) != 0;
  const size_t address_bytes = (instruction.parameters[2] & 2) != 0 ? 8 : 4;
  const bool has_result = instruction.parameters[3] != 0;
  const uint32_t bytes = kTypeNames[type][1] == '6' ? 8 : 4;
  uint64_t before[kLanes] = {};
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    uint64_t address = value_of(warp, instruction.at[0], address_bytes, lane) +
                       static_cast<uint64_t>(instruction.offset);
    if (address_bytes == 4) address = static_cast<uint32_t>(address);
    std::byte* const memory = is_shared
                                  ? checked_shared(warp, address, bytes, lane, Access::kAtomic)
                                  : checked_global(warp, address, bytes, Access::kAtomic);
    const uint64_t b = operation == kCompare ? value_of(warp, instruction.at[3], bytes, lane) : 0;
    update(operation, type, is_shared, memory, value_of(warp, instruction.at[2], bytes, lane), b,
           &before[lane]);
  }
  if (!has_result) return;
  if (bytes == 8) {
    warp.write(instruction.at[1], before);
    return;
  }
  uint32_t low[kLanes];
  std::ranges::transform(before, low, [](uint64_t bits) { return static_cast<uint32_t>(bits); });
  warp.write(instruction.at[1], low);
}

}  // namespace anneal::ptx
