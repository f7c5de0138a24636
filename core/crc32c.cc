// CRC-32C. The instruction has a latency of three cycles and a throughput of one, so three blocks
// are run side by side; their remainders are joined by appending zero bytes through a table. So are
// those of larger pieces, which threads take.
#include <array>

#include "anneal/core/bytes.h"
#include "anneal/core/parallel.h"

namespace anneal {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // reflected

using ByteTables = std::array<std::array<uint32_t, 256>, 4>;

constexpr uint32_t step_zero_byte(uint32_t crc) {
  for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
  return crc;
}

constexpr std::array<uint32_t, 256> kStep = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) table[byte] = step_zero_byte(byte);
  return table;
}();

// A linear map on remainders, as the images of the 32 bits.
using Linear = std::array<uint32_t, 32>;

constexpr uint32_t apply_matrix(const Linear& map, uint32_t crc) {
  uint32_t result = 0;
  for (int bit = 0; crc != 0; ++bit, crc >>= 1)
    if (crc & 1) result ^= map[bit];
  return result;
}

// The effect of 2^doublings zero bytes on a remainder, as one table per byte of the remainder.
constexpr ByteTables zeros_tables(int doublings) {
  Linear map{};
  for (int bit = 0; bit < 32; ++bit) map[bit] = step_zero_byte(1u << bit);
  for (int i = 0; i < doublings; ++i) {
    Linear twice{};
    for (int bit = 0; bit < 32; ++bit) twice[bit] = apply_matrix(map, map[bit]);
    map = twice;
  }
  ByteTables tables{};
  for (int place = 0; place < 4; ++place)
    for (uint32_t byte = 0; byte < 256; ++byte)
      tables[place][byte] = apply_matrix(map, byte << (8 * place));
  return tables;
}

uint32_t append_zeros(const ByteTables& tables, uint32_t crc) {
  return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
         tables[3][crc >> 24];
}

uint32_t by_table(const std::byte* at, const std::byte* end, uint32_t crc) {
  for (; at != end; ++at) crc = (crc >> 8) ^ kStep[(crc ^ static_cast<uint32_t>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__)

uint64_t load_word(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

template <int kDoublings>
__attribute__((target("sse4.2"))) uint32_t three_at_once(const std::byte*& at, const std::byte* end,
                                                         uint32_t crc) {
  constexpr ptrdiff_t kBlock = ptrdiff_t{1} << kDoublings;
  static constexpr ByteTables kZeros = zeros_tables(kDoublings);
  while (end - at >= 3 * kBlock) {
    uint64_t first = crc, second = 0, third = 0;
    for (const std::byte* stop = at + kBlock; at != stop; at += 8) {
      first = __builtin_ia32_crc32di(first, load_word(at));
      second = __builtin_ia32_crc32di(second, load_word(at + kBlock));
      third = __builtin_ia32_crc32di(third, load_word(at + 2 * kBlock));
    }
    crc = append_zeros(kZeros, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = append_zeros(kZeros, crc) ^ static_cast<uint32_t>(third);
    at += 2 * kBlock;
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(const std::byte* at, const std::byte* end,
                                                          uint32_t crc) {
  crc = three_at_once<13>(at, end, crc);
  crc = three_at_once<8>(at, end, crc);
  for (; end - at >= 8; at += 8)
    crc = static_cast<uint32_t>(__builtin_ia32_crc32di(crc, load_word(at)));
  for (; at != end; ++at) crc = __builtin_ia32_crc32qi(crc, static_cast<uint8_t>(*at));
  return crc;
}

#endif

uint32_t remainder(std::span<const std::byte> bytes, uint32_t crc) {
  const std::byte* at = bytes.data();
  const std::byte* end = at + bytes.size();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return by_instruction(at, end, crc);
#endif
  return by_table(at, end, crc);
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  return ~remainder(bytes, ~seed);
}

uint32_t crc32c(std::span<const std::byte> bytes, ThreadTeam& team, uint32_t seed) {
  constexpr int kDoublings = 20;
  constexpr size_t kPiece = size_t{1} << kDoublings;
  static constexpr ByteTables kZeros = zeros_tables(kDoublings);
  std::vector<uint32_t> pieces(bytes.size() / kPiece);
  team.for_ranges(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      pieces[i] = remainder(bytes.subspan(i * kPiece, kPiece), 0);
  });
  uint32_t crc = ~seed;
  for (const uint32_t piece : pieces) crc = append_zeros(kZeros, crc) ^ piece;
  return ~remainder(bytes.subspan(pieces.size() * kPiece), crc);
}

}  // namespace anneal
