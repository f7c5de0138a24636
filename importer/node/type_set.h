// TypeSet: the element types that an ONNX operator takes.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "anneal/core/dtype.h"

namespace anneal {

class TypeSet {
 public:
  constexpr TypeSet(std::initializer_list<DataType> types) {
    for (const DataType type : types) bits_ |= bit(type);
  }
  constexpr bool contains(DataType type) const { return (bits_ & bit(type)) != 0; }
  constexpr TypeSet operator|(TypeSet other) const {
    other.bits_ |= bits_;
    return other;
  }

 private:
  static constexpr uint32_t bit(DataType type) { return 1u << static_cast<int>(type); }
  uint32_t bits_ = 0;
};

inline constexpr TypeSet kFloats = {DataType::kF32, DataType::kF64, DataType::kF16,
                                    DataType::kBF16};
inline constexpr TypeSet k8Bit = {DataType::kI8, DataType::kU8};
inline constexpr TypeSet kSignedIntegers = {DataType::kI8, DataType::kI16, DataType::kI32,
                                            DataType::kI64};
inline constexpr TypeSet kUnsignedIntegers = {DataType::kU8, DataType::kU16, DataType::kU32,
                                              DataType::kU64};
inline constexpr TypeSet kIntegers = kSignedIntegers | kUnsignedIntegers;
inline constexpr TypeSet kNumbers = kFloats | kIntegers;
inline constexpr TypeSet kBooleans = {DataType::kBool};
inline constexpr TypeSet kNumbersAndBooleans = kNumbers | kBooleans;
inline constexpr TypeSet kIndices = {DataType::kI32, DataType::kI64};

}  // namespace anneal
