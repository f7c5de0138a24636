#include "anneal/engine/slot_alignment.h"

#include <gtest/gtest.h>

namespace anneal::testing {
namespace {

Slot slot(Storage storage, DataType dtype = DataType::kF16) {
  return {.type = {dtype, {8}}, .strides = {1}, .storage = storage};
}

Slot view(uint32_t base, Size offset, DataType dtype = DataType::kF16) {
  Slot view = slot(Storage::kView, dtype);
  view.base = base;
  view.base_offset = offset;
  return view;
}

TEST(SlotAlignment, ComesFromTheBaseAndTheOffset) {
  SizeTable sizes;
  Plan plan;
  plan.slots = {slot(Storage::kArena),
                slot(Storage::kWeight),
                slot(Storage::kInput),
                slot(Storage::kOutput),
                slot(Storage::kDataDependent),
                view(0, 0),
                view(1, 12),
                view(0, 7),
                view(0, 32, DataType::kI8),
                view(2, 0),
                view(0, sizes.symbol("N"))};
  const std::vector<uint32_t> slots = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, kNoSlot};
  const std::vector<uint32_t> wanted = {64, 64, 0, 0, 64, 64, 8, 2, 32, 0, 0, 0};
  EXPECT_EQ(alignments_of(plan, slots), wanted);
}

}  // namespace
}  // namespace anneal::testing
