#include "anneal/kernels/cuda/emulated/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "anneal/core/float16.h"
#include "anneal/kernels/cuda/emulated/block.h"

namespace anneal::cuda {

using emulator::Access;
using emulator::Address;
using emulator::Count;
using emulator::Mma;
using emulator::SharedArray;
using emulator::Shuffle;
using emulator::Site;
using emulator::Thread;

namespace {

constexpr uint32_t kWarp = BlockRunner::kWarp, kWholeWarp = BlockRunner::kWholeWarp;

struct ShuffleLane {
  uint64_t bits;
  uint32_t source;
};
// A lane that does not take part gives poison.
void shuffle_lanes(BlockRunner&, void* const* lanes, uint32_t active) {
  std::array<uint64_t, kWarp> results;
  for (uint32_t i = 0; i < kWarp; ++i) {
    if ((active >> i & 1) == 0) continue;
    const uint32_t source = static_cast<ShuffleLane*>(lanes[i])->source;
    results[i] =
        (active >> source & 1) != 0 ? static_cast<ShuffleLane*>(lanes[source])->bits : ~uint64_t{0};
  }
  for (uint32_t i = 0; i < kWarp; ++i)
    if ((active >> i & 1) != 0) static_cast<ShuffleLane*>(lanes[i])->bits = results[i];
}

uint32_t source_lane(Shuffle kind, uint32_t lane, int operand, uint32_t width) {
  const uint32_t first = lane & ~(width - 1), by = static_cast<uint32_t>(operand);
  switch (kind) {
    case Shuffle::kLane:
      return first | (by & (width - 1));
    case Shuffle::kUp:
      return by > lane - first ? lane : lane - by;
    case Shuffle::kDown:
      return by >= width - (lane - first) ? lane : lane + by;
    case Shuffle::kXor:
      return (lane ^ by) >= first + width ? lane : lane ^ by;
  }
  return lane;
}

struct VoteLane {
  bool vote;
  uint32_t votes;
};
void count_votes(BlockRunner&, void* const* lanes, uint32_t active) {
  uint32_t votes = 0;
  for (uint32_t i = 0; i < kWarp; ++i)
    if ((active >> i & 1) != 0 && static_cast<VoteLane*>(lanes[i])->vote) votes |= 1u << i;
  for (uint32_t i = 0; i < kWarp; ++i)
    if ((active >> i & 1) != 0) static_cast<VoteLane*>(lanes[i])->votes = votes;
}

struct MatrixLane {
  const uint16_t* row;  // of 8
  bool transposed;
  unsigned* result;
};
void load_matrices(BlockRunner&, void* const* lanes, uint32_t) {
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const auto& mine = *static_cast<MatrixLane*>(lanes[lane]);
    const uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const auto at = [&](uint32_t row, uint32_t column) -> uint32_t {
        if (mine.transposed) std::swap(row, column);
        return static_cast<MatrixLane*>(lanes[matrix * 8 + row])->row[column];
      };
      mine.result[matrix] = at(group, pair) | at(group, pair + 1) << 16;
    }
  }
}

struct MmaLane {
  Mma kind;
  void* c;
  const unsigned* a;
  unsigned b[2];
};
template <class Number, class Element>
void multiply(void* const* lanes, int per_register, const Element& element_of) {
  // a: 16 rows; b by columns: 8; both as deep as 4 lanes with 2 registers for each row.
  const int depth = 8 * per_register;
  std::array<std::array<Number, 32>, 16> a;
  std::array<std::array<Number, 32>, 8> b;
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<MmaLane*>(lanes[lane]);
    const int group = lane / 4, first = lane % 4 * per_register;
    for (int i = 0; i < per_register; ++i)
      for (int half = 0; half < 2; ++half) {
        const auto at = static_cast<size_t>(first + i + half * 4 * per_register);
        a[group][at] = element_of(mine.a[half * 2], i, true);
        a[group + 8][at] = element_of(mine.a[half * 2 + 1], i, true);
        b[group][at] = element_of(mine.b[half], i, false);
      }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    auto* c = static_cast<Number*>(static_cast<MmaLane*>(lanes[lane])->c);
    for (int i = 0; i < 4; ++i) {
      using Sum = std::conditional_t<std::is_same_v<Number, float>, float, uint32_t>;
      Sum sum = static_cast<Sum>(c[i]);
      for (int k = 0; k < depth; ++k)
        sum += static_cast<Sum>(a[group + i / 2 * 8][k]) * static_cast<Sum>(b[pair + i % 2][k]);
      c[i] = static_cast<Number>(sum);
    }
  }
}

void multiply_matrices(BlockRunner&, void* const* lanes, uint32_t) {
  const Mma kind = static_cast<MmaLane*>(lanes[0])->kind;
  const auto half = [](uint32_t bits, int i) { return static_cast<uint16_t>(bits >> 16 * i); };
  const auto byte = [kind](uint32_t bits, int i, bool of_a) -> int32_t {
    const bool is_unsigned = kind == Mma::kU8U8 || kind == (of_a ? Mma::kU8S8 : Mma::kS8U8);
    const auto value = static_cast<uint8_t>(bits >> 8 * i);
    return is_unsigned ? value : static_cast<int8_t>(value);
  };
  if (kind == Mma::kF16)
    multiply<float>(lanes, 2, [&](uint32_t r, int i, bool) { return to_f32(Float16{half(r, i)}); });
  else if (kind == Mma::kBf16)
    multiply<float>(lanes, 2,
                    [&](uint32_t r, int i, bool) { return to_f32(BFloat16{half(r, i)}); });
  else
    multiply<int32_t>(lanes, 4, byte);
}

}  // namespace

// With access to a runner's private members.
struct EmulatorCalls {
  using Running = BlockRunner::Running;
  static Running& of(Thread& thread) { return BlockRunner::of(thread); }

  // Its part in an instruction without addresses.
  static void count(const Running& running, Count kind, Site site) {
    if (running.runner->counts_)
      running.runner->counter_.add(running.number, kind, 0, 0, -1, nullptr, site);
  }
  static void count_global(Thread& thread, Count kind, int operand, Address at, unsigned bytes,
                           Site site) {
    const Running& running = of(thread);
    running.runner->counter_.add(running.number, kind, at, bytes, operand, nullptr, site);
  }
  static void count_shared(Thread& thread, Count kind, const SharedArray* array, Address at,
                           unsigned bytes, Site site) {
    const Running& running = of(thread);
    if (running.runner->counts_)
      running.runner->counter_.add(running.number, kind, at, bytes, -1, array, site);
  }
  static void operand(Thread& thread, Address begin, Address at, unsigned bytes, Access access,
                      Site site) {
    Running& running = of(thread);
    const EmulatedMemory& memory = running.runner->memory_;
    const uint64_t address = begin == BlockRunner::kUnbound ? at : EmulatedMemory::device(at);
    const bool misaligned = at % bytes != 0;
    running.runner->take_fault(
        running, misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS,
        fmt::format(
            "{} {} bytes: {}{}", access == Access::kRead ? "reads" : "accesses", bytes,
            memory.describe(address),
            misaligned ? fmt::format(", at an address that is no multiple of {}", bytes) : ""),
        site);
    running.runner->give_up(running);
  }
  static SharedArray* declare_shared(Thread& thread, const void* key, Address bytes,
                                     unsigned element, const char* name, Site site) {
    Running& running = of(thread);
    {
      const auto array = running.runner->shared_.declare(key, bytes, element, name);
      if (array) return *array;
      running.runner->take_fault(running, CUDA_ERROR_LAUNCH_FAILED, array.reason(), site);
    }
    running.runner->give_up(running);
  }
  // True if there is none.
  static bool take_shared_fault(const Running& running, const std::string& wrong, Address at,
                                unsigned bytes, Site site) {
    if (wrong.empty()) return true;
    running.runner->take_fault(
        running, at % bytes != 0 ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_LAUNCH_FAILED, wrong,
        site);
    return false;
  }
  static void shared(Thread& thread, const SharedArray* array, Address at, unsigned bytes,
                     Access access, Site site) {
    Running& running = of(thread);
    BlockRunner& runner = *running.runner;
    if (!take_shared_fault(
            running,
            runner.shared_.access(*array, at, bytes, access, site.line, runner.now(running)), at,
            bytes, site))
      runner.give_up(running);
  }
  static void copy_async(Thread& thread, const SharedArray* array, Address to, Address from,
                         unsigned bytes, Site site) {
    Running& running = of(thread);
    BlockRunner& runner = *running.runner;
    if (!take_shared_fault(
            running, runner.shared_.begin_copy(*array, to, bytes, site.line, runner.now(running)),
            to, bytes, site))
      runner.give_up(running);
    runner.states_[running.number].copies.push_back({array, to, from, bytes, site.line});
  }
  static void copy_async_commit(Thread& thread) {
    auto& state = of(thread).runner->states_[of(thread).number];
    state.groups.push_back(state.copies.size());
  }
  static void copy_async_wait(Thread& thread, int groups) {
    Running& running = of(thread);
    auto& state = running.runner->states_[running.number];
    const auto left = static_cast<size_t>(groups);
    if (state.groups.size() <= left) return;
    const size_t ended = state.groups.size() - left;
    running.runner->finish_copies(running, state.groups[ended - 1]);
    state.groups.erase(state.groups.begin(),
                       state.groups.begin() + static_cast<std::ptrdiff_t>(ended));
  }
  static void sync_threads(Thread& thread, Site site) {
    count(of(thread), Count::kBarrier, site);
    of(thread).runner->wait_for_block(of(thread), site);
  }
  static void sync_warp(Thread& thread, unsigned mask, Site site) {
    count(of(thread), Count::kWarpBarrier, site);
    of(thread).runner->wait_for_warp(of(thread), mask, "__syncwarp", nullptr, nullptr, site);
  }
  static Address shuffle(Thread& thread, Shuffle kind, unsigned mask, Address bits, int operand,
                         int width, Site site) {
    Running& running = of(thread);
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
      running.runner->take_fault(running, CUDA_ERROR_LAUNCH_FAILED,
                                 fmt::format("shuffles with a width of {}", width), site);
      running.runner->give_up(running);
    }
    constexpr const char* kNames[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                      "__shfl_xor_sync"};
    count(running, Count::kShuffle, site);
    ShuffleLane lane{
        bits, source_lane(kind, running.number % kWarp, operand, static_cast<uint32_t>(width))};
    running.runner->wait_for_warp(running, mask, kNames[static_cast<int>(kind)], shuffle_lanes,
                                  &lane, site);
    return lane.bits;
  }
  static unsigned ballot(Thread& thread, unsigned mask, bool vote, Site site) {
    count(of(thread), Count::kShuffle, site);
    VoteLane lane{vote, 0};
    of(thread).runner->wait_for_warp(of(thread), mask, "a vote", count_votes, &lane, site);
    return lane.votes;
  }
  static void ldmatrix(Thread& thread, const SharedArray* array, Address at, bool transposed,
                       unsigned* result, Site site) {
    constexpr unsigned kRowBytes = 16;
    Running& running = of(thread);
    shared(thread, array, at, kRowBytes, Access::kRead, site);
    count_shared(thread, Count::kMatrixLoad, array, at, kRowBytes, site);
    MatrixLane lane{reinterpret_cast<const uint16_t*>(at), transposed, result};
    running.runner->wait_for_warp(running, kWholeWarp, transposed ? "ldmatrix.trans" : "ldmatrix",
                                  load_matrices, &lane, site, true);
  }
  static void mma(Thread& thread, Mma kind, void* c, const unsigned* a, unsigned b0, unsigned b1,
                  Site site) {
    Running& running = of(thread);
    constexpr const char* kNames[] = {"mma f16",   "mma bf16",  "mma s8 s8",
                                      "mma u8 s8", "mma s8 u8", "mma u8 u8"};
    count(running, Count::kMma, site);
    MmaLane lane{kind, c, a, {b0, b1}};
    running.runner->wait_for_warp(running, kWholeWarp, kNames[static_cast<int>(kind)],
                                  multiply_matrices, &lane, site, true);
  }
};

const emulator::Api& emulator_api() {
  using C = EmulatorCalls;
  static constexpr emulator::Api kApi = {C::operand,      C::declare_shared,    C::shared,
                                         C::copy_async,   C::copy_async_commit, C::copy_async_wait,
                                         C::sync_threads, C::sync_warp,         C::shuffle,
                                         C::ballot,       C::ldmatrix,          C::mma,
                                         C::count_global, C::count_shared};
  return kApi;
}

}  // namespace anneal::cuda
