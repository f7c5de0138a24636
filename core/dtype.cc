#include "anneal/core/dtype.h"

#include <iterator>
#include <string>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

struct Row {
  DataType dtype;
  std::string_view name;
  size_t size;
};
constexpr Row kRows[] = {
    {DataType::kF32, "f32", 4},   {DataType::kF64, "f64", 8},       {DataType::kF16, "f16", 2},
    {DataType::kBF16, "bf16", 2}, {DataType::kI8, "i8", 1},         {DataType::kI16, "i16", 2},
    {DataType::kI32, "i32", 4},   {DataType::kI64, "i64", 8},       {DataType::kU8, "u8", 1},
    {DataType::kU16, "u16", 2},   {DataType::kU32, "u32", 4},       {DataType::kU64, "u64", 8},
    {DataType::kBool, "bool", 1}, {DataType::kString, "string", 0},
};
constexpr size_t kRowCount = std::size(kRows);

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kRowCount; ++i)
    if (static_cast<size_t>(kRows[i].dtype) != i + 1) return false;
  return true;
}
static_assert(rows_are_in_order(), "row_of() indexes by value");
static_assert(kRows[kRowCount - 1].dtype == DataType::kString, "all_dtypes() ends there");

const Row& row_of(DataType dtype) {
  const size_t index = static_cast<size_t>(dtype) - 1;
  // Any number may be cast to a DataType, and applications do.
  if (index >= kRowCount)
    fail(ErrorCode::kInvalidArgument,
         "there is no DataType " + std::to_string(static_cast<int>(dtype)));
  return kRows[index];
}

}  // namespace

std::string_view to_string(DataType dtype) { return row_of(dtype).name; }

size_t size_of(DataType dtype) {
  const Row& row = row_of(dtype);
  check(row.size != 0, "a string has no size");
  return row.size;
}

}  // namespace anneal
