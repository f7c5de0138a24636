#include "anneal/tests/virtual_card/ptx/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "anneal/tests/virtual_card/ptx/speed.h"

namespace anneal::ptx {
namespace {

std::vector<uint64_t> order(uint64_t count, std::mt19937_64* random) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), uint64_t{0});
  if (random != nullptr) std::shuffle(numbers.begin(), numbers.end(), *random);
  return numbers;
}

// Rounds in which all warps that still run wait for mbarriers, and none changes one.
constexpr int kMostIdleRounds = 1000;

// Until each warp has ended. Between barriers a warp runs alone: accesses that conflict are found
// by their times, whatever the order.
void run_block(Block& block, std::vector<Warp>& warps, std::mt19937_64* random) {
  std::vector<Warp::State> states(warps.size(), Warp::State::kPolls);
  for (Warp& warp : warps) warp.begin();
  int idle_rounds = 0;
  while (true) {
    const uint64_t changes = block.barrier_changes;
    bool has_changed = false;
    Warp* polling = nullptr;
    for (const uint64_t i : order(warps.size(), random)) {
      if (states[i] != Warp::State::kPolls) continue;
      states[i] = warps[i].run();
      if (states[i] == Warp::State::kPolls)
        polling = &warps[i];
      else
        has_changed = true;
    }
    if (polling != nullptr) {
      const bool is_idle = !has_changed && block.barrier_changes == changes;
      idle_rounds = is_idle ? idle_rounds + 1 : 0;
      if (idle_rounds > kMostIdleRounds)
        polling->fault(Fault::kEndless, "waits for a phase of an mbarrier that does not end");
      continue;
    }
    size_t waiting = 0;
    Warp* first = nullptr;
    for (size_t i = 0; i < warps.size(); ++i) {
      if (states[i] != Warp::State::kAtBarrier) continue;
      if (++waiting == 1)
        first = &warps[i];
      else if (warps[i].barrier_place() != first->barrier_place())
        warps[i].fault(Fault::kUndefined, "warps of a block wait at different barriers");
    }
    if (waiting == 0) return;
    if (waiting != warps.size())
      first->fault(Fault::kUndefined, fmt::format("{} of {} warps wait, the others have ended",
                                                  waiting, warps.size()));
    ++block.epoch;
    for (Warp& warp : warps) warp.pass_barrier();
    std::ranges::fill(states, Warp::State::kPolls);
  }
}

}  // namespace

uint64_t run(const Function& function, const std::byte* parameters, const Launch& launch,
             GlobalMemory& global, const Arithmetic& arithmetic) {
  const size_t before_dynamic = (function.static_shared_bytes + 15) / 16 * 16;
  SharedMemory shared(launch.dynamic_shared_bytes == 0
                          ? function.static_shared_bytes
                          : before_dynamic + launch.dynamic_shared_bytes);
  std::mt19937_64 random(launch.seed);
  std::mt19937_64* const shuffled = launch.seed == 0 ? nullptr : &random;
  Block block{.function = function,
              .parameters = parameters,
              .grid = launch.grid,
              .size = launch.block,
              .index = {},
              .global = global,
              .shared = shared,
              .arithmetic = arithmetic};
  block.touched = launch.touched;
  std::vector<Warp> warps;
  const uint64_t count = (launch.block.count() + kLanes - 1) / kLanes;
  warps.reserve(count);
  for (uint64_t i = 0; i < count; ++i) warps.emplace_back(block, static_cast<uint32_t>(i * kLanes));
  const double begin = thread_seconds();
  uint64_t steps = 0;
  for (const uint64_t i : order(launch.grid.count(), shuffled)) {
    block.index = {static_cast<uint32_t>(i % launch.grid.x),
                   static_cast<uint32_t>(i / launch.grid.x % launch.grid.y),
                   static_cast<uint32_t>(i / launch.grid.x / launch.grid.y)};
    block.mark = mark_of(launch.number, i);
    block.most_steps = launch.most_steps;
    block.steps = 0;
    ++block.epoch;
    block.barriers.clear();
    block.late.clear();
    shared.clear();
    run_block(block, warps, shuffled);
    steps += block.steps;
  }
  count_instructions(steps, thread_seconds() - begin);
  return steps;
}

}  // namespace anneal::ptx
