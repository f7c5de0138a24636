#include "anneal/kernels/cuda/cost/request_cost.h"

#include <algorithm>
#include <bit>

namespace anneal::cuda {
namespace {

constexpr uint32_t kLanes = 32, kSector = 32, kLine = 128, kBanks = 32, kWord = 4;
constexpr uint32_t kMostLaneBytes = 16;  // of one instruction

// A set of distinct numbers; a lane has few.
class Distinct {
 public:
  void add(uint64_t number) {
    // Neighbouring lanes mostly ask for the same or the next.
    if (count_ == 0 || numbers_[count_ - 1] != number) numbers_[count_++] = number;
  }
  int count() {
    std::sort(numbers_.begin(), numbers_.begin() + count_);
    count_ = static_cast<int>(std::unique(numbers_.begin(), numbers_.begin() + count_) -
                              numbers_.begin());
    return count_;
  }
  uint64_t operator[](int i) const { return numbers_[static_cast<size_t>(i)]; }

 private:
  std::array<uint64_t, kLanes * 4> numbers_;
  int count_ = 0;
};

// For lanes [first, first + count): `bytes` at `offset` from the address of each.
int wavefronts_of(const WarpRequest& request, uint32_t first, uint32_t count, uint32_t offset,
                  uint32_t bytes) {
  Distinct words;
  for (uint32_t lane = first; lane < first + count; ++lane)
    if ((request.active >> lane & 1) != 0)
      for (uint32_t byte = 0; byte < bytes; byte += kWord)
        words.add((request.at[lane] + offset + byte) / kWord);
  std::array<int, kBanks> in_bank{};
  int most = 0;
  for (int i = words.count(); i-- > 0;) most = std::max(most, ++in_bank[words[i] % kBanks]);
  return most;
}

}  // namespace

GlobalCost global_cost(const WarpRequest& request, uint32_t bytes) {
  GlobalCost cost;
  Distinct sectors, lines, places;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((request.active >> lane & 1) == 0) continue;
    const uint64_t begin = request.at[lane], last = begin + bytes - 1;
    for (uint64_t sector = begin / kSector; sector <= last / kSector; ++sector) sectors.add(sector);
    for (uint64_t line = begin / kLine; line <= last / kLine; ++line) lines.add(line);
    places.add(begin);
  }
  cost.sectors = sectors.count();
  cost.lines = lines.count();
  cost.ideal =
      static_cast<int>((static_cast<uint32_t>(places.count()) * bytes + kSector - 1) / kSector);
  return cost;
}

SharedCost shared_cost(const WarpRequest& request, uint32_t bytes) {
  SharedCost cost;
  const uint32_t step = std::min(bytes, kMostLaneBytes);
  const uint32_t at_once = std::min(kLanes, kLine / std::max(step, kWord));
  for (uint32_t offset = 0; offset < bytes; offset += step)
    for (uint32_t first = 0; first < kLanes; first += at_once)
      cost.wavefronts += wavefronts_of(request, first, at_once, offset, step);
  const auto active = static_cast<uint32_t>(std::popcount(request.active));
  cost.ideal = static_cast<int>((active * bytes + kLine - 1) / kLine);
  return cost;
}

}  // namespace anneal::cuda
