// Who has accessed a byte of global memory, as one number: launch, block and line.
#pragma once
#include <algorithm>
#include <cstdint>

namespace anneal::ptx {

// From the highest bit: 24 bits of the launch, 1 of an atomic operation, 23 of the block, 16 of the
// line. 0: none. A launch has the number of the one 16,777,215 launches before it, and a block that
// of the one 8,388,606 blocks before it.
using Mark = uint64_t;
inline constexpr int kMarkLineBits = 16, kMarkBlockBits = 23;
inline constexpr int kMarkLaunchShift = kMarkLineBits + kMarkBlockBits + 1;
inline constexpr Mark kMarkLine = (Mark{1} << kMarkLineBits) - 1;
inline constexpr Mark kManyBlocks = (Mark{1} << kMarkBlockBits) - 1;  // more than one has written
inline constexpr Mark kMarkAtomic = Mark{1} << (kMarkLaunchShift - 1);

constexpr Mark mark_of(uint64_t launch, uint64_t block) {
  constexpr uint64_t kLaunches = (uint64_t{1} << (64 - kMarkLaunchShift)) - 1;
  return (launch % kLaunches + 1) << kMarkLaunchShift | (block % (kManyBlocks - 1) + 1)
                                                            << kMarkLineBits;
}
// Lines from 65535 on, which no text of ours has, are one.
constexpr Mark with_line(Mark mark, uint32_t line) {
  return (mark & ~kMarkLine) | std::min<Mark>(line, kMarkLine);
}

// Of a mark that is not 0, the block + 1; or kManyBlocks.
constexpr uint64_t mark_block(Mark mark) { return mark >> kMarkLineBits & kManyBlocks; }
constexpr bool is_of_launch(Mark mark, Mark me) { return (mark ^ me) >> kMarkLaunchShift == 0; }
// Whether the mark is of this launch, but not of this block, or of another kind of access.
constexpr bool is_of_other(Mark mark, Mark me) {
  return is_of_launch(mark, me) && (mark ^ me) >> kMarkLineBits != 0;
}

}  // namespace anneal::ptx
