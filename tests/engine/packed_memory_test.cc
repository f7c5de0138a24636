// Memory of packed constants: pieces of blocks that live as long as a piece does.
#include "anneal/engine/run/memory/packed_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace anneal {
namespace {

TEST(PackedMemory, PiecesAreZeroedAlignedAndApart) {
  std::vector<NewTensor> pieces;
  {
    PackedMemory memory;
    // The first ones, many of a block, one that fills the rest of it or not, one with own pages.
    for (const size_t bytes :
         {size_t{1}, size_t{900} << 10, size_t{0}, size_t{65}, size_t{2} << 20})
      pieces.push_back(memory.allocate(bytes));
    for (int i = 0; i < 40; ++i) pieces.push_back(memory.allocate((size_t{1} << 20) - 64 * i - 1));
  }
#ifndef __SANITIZE_ADDRESS__
  // Pieces of a block follow each other.
  EXPECT_EQ(pieces[6].data.data(), pieces[5].data.data() + (size_t{1} << 20));
#endif
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::span<std::byte> data = pieces[i].data;
    EXPECT_EQ(pieces[i].tensor.bytes().data(), data.data());
    EXPECT_EQ(pieces[i].tensor.bytes().size(), data.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 64, 0U);
    EXPECT_TRUE(std::ranges::all_of(data, [](std::byte each) { return each == std::byte{0}; }));
    std::ranges::fill(data, static_cast<std::byte>(i + 1));
  }
  pieces.erase(pieces.begin() + 6);  // the others of its block stay
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto wanted = static_cast<std::byte>(i + (i < 6 ? 1 : 2));
    EXPECT_TRUE(
        std::ranges::all_of(pieces[i].data, [&](std::byte each) { return each == wanted; }));
  }
}

}  // namespace
}  // namespace anneal
