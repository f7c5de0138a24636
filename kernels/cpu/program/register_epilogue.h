// Register epilogues: the most frequent epilogues, which some kernels apply to sums in registers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "anneal/core/dtype.h"

namespace anneal::cpu {

// An epilogue on sums in registers: y = sum * scale + offset + addend, each operation rounded in
// this order, limited to [low, high] and stored as f32 or bf16, where NaN stays NaN. Results of 8
// bits have no addend: y = (sum * scale + offset) * factor, limited to [low, high], is rounded to
// the nearest whole number, ties to even, and zero is added; NaN becomes the lower limit.
struct RegisterEpilogue {
  DataType storage = DataType::kF32;  // of y and the addend
  // Per column of the block; null: 1 and -0, which change nothing.
  const float *scale = nullptr, *offset = nullptr;
  const std::byte* addend = nullptr;  // null: nothing is added
  int64_t addend_stride = 0;          // bytes from row to row
  float low = 0, high = 0, factor = 1;
  int32_t zero = 0;
  std::byte* y = nullptr;
  int64_t y_stride = 0;  // bytes from row to row
};

// The same for the columns from this one on.
inline RegisterEpilogue from_column(RegisterEpilogue epilogue, int64_t column) {
  const int64_t bytes = column * static_cast<int64_t>(size_of(epilogue.storage));
  if (epilogue.scale != nullptr) epilogue.scale += column;
  if (epilogue.offset != nullptr) epilogue.offset += column;
  if (epilogue.addend != nullptr) epilogue.addend += bytes;
  epilogue.y += bytes;
  return epilogue;
}

// Which storage a kernel can finish for.
using CanStore = bool (*)(DataType storage);
inline bool stores_nothing(DataType) { return false; }

}  // namespace anneal::cpu
