// mbarrier objects in shared memory (PTX manual, "Parallel synchronization: mbarrier").
//
// The end of a phase orders all accesses of the block before it against those after it. The manual
// orders only those of threads that arrive and wait, so some races are missed here.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/tests/virtual_card/ptx/access.h"
#include "anneal/tests/virtual_card/ptx/entries.h"

namespace anneal::ptx {
namespace {

constexpr uint32_t kMostCount = (1u << 20) - 1;

uint32_t address_in(const Warp& warp, const Instruction& instruction, size_t at, uint32_t lane) {
  return warp.read<uint32_t>(instruction.at[at])[lane] + static_cast<uint32_t>(instruction.offset);
}

// The object at the address. Arrivals and waits of several threads need no order among themselves.
MemoryBarrier& barrier_at(Warp& warp, uint32_t address, uint32_t lane) {
  checked_shared(warp, address, 8, lane, Access::kAtomic);
  auto& barriers = warp.block().barriers;
  const auto found = barriers.find(address);
  if (found == barriers.end())
    warp.fault(Fault::kUndefined,
               fmt::format("there is no mbarrier at byte {} of shared memory", address));
  return found->second;
}

void end_phase_if_complete(Block& block, MemoryBarrier& barrier) {
  ++block.barrier_changes;
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  ++block.epoch;
}

void arrive_at(Warp& warp, MemoryBarrier& barrier, uint32_t count) {
  if (count == 0 || count > barrier.pending)
    warp.fault(Fault::kUndefined, fmt::format("{} arrivals at an mbarrier that expects {} more",
                                              count, barrier.pending));
  barrier.pending -= count;
  end_phase_if_complete(warp.block(), barrier);
}

void expect_bytes(Warp& warp, MemoryBarrier& barrier, int64_t bytes) {
  barrier.bytes += bytes;
  if (std::abs(barrier.bytes) > kMostCount)
    warp.fault(Fault::kUndefined, "more bytes than an mbarrier can expect");
}

template <class Use>
void for_each_lane(const Warp& warp, Use use) {
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1)
    use(static_cast<uint32_t>(std::countr_zero(left)));
}

// "[address], count"
void initialize(Warp& warp, const Instruction& instruction) {
  for_each_lane(warp, [&](uint32_t lane) {
    const uint32_t address = address_in(warp, instruction, 0, lane);
    const uint32_t count = warp.read<uint32_t>(instruction.at[1])[lane];
    if (count == 0 || count > kMostCount)
      warp.fault(Fault::kUndefined, fmt::format("an mbarrier of {} arrivals", count));
    checked_shared(warp, address, 8, lane, Access::kStore);
    warp.block().barriers[address] = {.expected = count, .pending = count};
    ++warp.block().barrier_changes;
  });
}
void invalidate(Warp& warp, const Instruction& instruction) {
  for_each_lane(warp, [&](uint32_t lane) {
    const uint32_t address = address_in(warp, instruction, 0, lane);
    barrier_at(warp, address, lane);
    warp.block().barriers.erase(address);
  });
}

enum class Arrival : uint8_t { kOne, kCount, kExpectBytes, kDrop, kDropCount };
// "state, [address], count"; the state is that before the arrival.
template <Arrival arrival>
void arrive(Warp& warp, const Instruction& instruction) {
  uint64_t states[kLanes] = {};
  for_each_lane(warp, [&](uint32_t lane) {
    MemoryBarrier& barrier = barrier_at(warp, address_in(warp, instruction, 1, lane), lane);
    states[lane] = barrier.phase << 20 | barrier.pending;
    uint32_t count = 1;
    if (arrival == Arrival::kCount || arrival == Arrival::kDropCount)
      count = warp.read<uint32_t>(instruction.at[2])[lane];
    if (arrival == Arrival::kExpectBytes)
      expect_bytes(warp, barrier, warp.read<uint32_t>(instruction.at[2])[lane]);
    if (arrival == Arrival::kDrop || arrival == Arrival::kDropCount)
      barrier.expected -= std::min(count, barrier.expected);
    arrive_at(warp, barrier, count);
  });
  warp.write(instruction.at[0], states);
}

// "[address], bytes"
template <bool is_complete>
void change_bytes(Warp& warp, const Instruction& instruction) {
  for_each_lane(warp, [&](uint32_t lane) {
    MemoryBarrier& barrier = barrier_at(warp, address_in(warp, instruction, 0, lane), lane);
    const int64_t bytes = warp.read<uint32_t>(instruction.at[1])[lane];
    expect_bytes(warp, barrier, is_complete ? -bytes : bytes);
    if (is_complete) end_phase_if_complete(warp.block(), barrier);
  });
}

// "[address]": an arrival when the thread's copies so far have arrived. Without .noinc the phase
// expects it in addition to the others.
template <bool is_counted>
void arrive_after_copies(Warp& warp, const Instruction& instruction) {
  for_each_lane(warp, [&](uint32_t lane) {
    const uint32_t address = address_in(warp, instruction, 0, lane);
    MemoryBarrier& barrier = barrier_at(warp, address, lane);
    if (!is_counted) ++barrier.pending;
    warp.block().late.push_back({&warp, address, warp.take_copies(lane)});
  });
}

// What follows when copies have arrived happens as late as waiting allows.
void finish_late(Block& block, uint32_t address) {
  std::vector<LateArrival> due;
  std::erase_if(block.late, [&](LateArrival& late) {
    if (late.barrier != address) return false;
    due.push_back(std::move(late));
    return true;
  });
  for (const LateArrival& late : due) {
    for (const AsyncCopy& copy : late.copies) late.warp->arrive(copy);
    arrive_at(*late.warp, block.barriers.at(address), 1);
  }
}

// "p, [address], state" or, for parities, "p, [address], parity". One that is not complete lets
// others run, so that a loop around it ends.
template <bool has_parity>
void wait(Warp& warp, const Instruction& instruction) {
  uint32_t complete = 0;
  for_each_lane(warp, [&](uint32_t lane) {
    const uint32_t address = address_in(warp, instruction, 1, lane);
    MemoryBarrier& barrier = barrier_at(warp, address, lane);
    uint64_t phase = 0;
    if (has_parity) {
      const uint32_t parity = warp.read<uint32_t>(instruction.at[2])[lane];
      if (parity > 1) warp.fault(Fault::kUndefined, fmt::format("a phase of parity {}", parity));
      phase = barrier.phase % 2 == parity ? barrier.phase : barrier.phase - 1;
    } else {
      phase = warp.read<uint64_t>(instruction.at[2])[lane] >> 20;
      if (phase > barrier.phase || phase + 1 < barrier.phase)
        warp.fault(Fault::kUndefined, "the state is not of this or the phase before");
    }
    if (phase != barrier.phase) {
      complete |= 1u << lane;
    } else {
      finish_late(warp.block(), address);
      warp.poll();
    }
  });
  warp.set_predicate(instruction.at[0], complete);
}

struct PendingCount {
  uint32_t operator()(uint64_t state) const { return static_cast<uint32_t>(state & kMostCount); }
};
void pending_count(Warp& warp, const Instruction& instruction) {
  const auto* const states = warp.read<uint64_t>(instruction.at[1]);
  uint32_t counts[kLanes];
  std::transform(states, states + kLanes, counts, PendingCount());
  warp.write(instruction.at[0], counts);
}

// The decoder drops orders and scopes: ".release.cta".
constexpr Entry kEntries[] = {
    {"mbarrier.init.shared.b64", initialize, "=aw"},
    {"mbarrier.inval.shared.b64", invalidate, "=a"},
    {"mbarrier.arrive.shared.b64", arrive<Arrival::kOne>, "d=a"},
    {"mbarrier.arrive.shared.b64", arrive<Arrival::kCount>, "d=aw"},
    {"mbarrier.arrive.expect_tx.shared.b64", arrive<Arrival::kExpectBytes>, "d=aw"},
    {"mbarrier.arrive_drop.shared.b64", arrive<Arrival::kDrop>, "d=a"},
    {"mbarrier.arrive_drop.shared.b64", arrive<Arrival::kDropCount>, "d=aw"},
    {"mbarrier.expect_tx.shared.b64", change_bytes<false>, "=aw"},
    {"mbarrier.complete_tx.shared.b64", change_bytes<true>, "=aw"},
    {"mbarrier.test_wait.shared.b64", wait<false>, "p=ad"},
    {"mbarrier.test_wait.parity.shared.b64", wait<true>, "p=aw"},
    {"mbarrier.try_wait.shared.b64", wait<false>, "p=ad"},
    {"mbarrier.try_wait.shared.b64", wait<false>, "p=adw"},
    {"mbarrier.try_wait.parity.shared.b64", wait<true>, "p=aw"},
    {"mbarrier.try_wait.parity.shared.b64", wait<true>, "p=aww"},
    {"mbarrier.pending_count.b64", pending_count, "w=d"},
    {"cp.async.mbarrier.arrive.shared.b64", arrive_after_copies<false>, "=a"},
    {"cp.async.mbarrier.arrive.noinc.shared.b64", arrive_after_copies<true>, "=a"},
};

}  // namespace

std::span<const Entry> mbarrier_entries() { return kEntries; }

}  // namespace anneal::ptx
