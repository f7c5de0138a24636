// Runs the blocks of a launch on the emulated device, each thread of a block for as long as it need
// not wait for others.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/kernels/cuda/device/emulator.h"
#include "anneal/kernels/cuda/emulated/counter.h"
#include "anneal/kernels/cuda/emulated/fibers.h"
#include "anneal/kernels/cuda/emulated/memory.h"
#include "anneal/kernels/cuda/emulated/shared.h"

namespace anneal::cuda {

// The properties of a loaded function.
struct EmulatedFunction {
  std::string name;
  const emulator::Entry* entry;
  std::string_view program;  // the text it is from, for messages
};

struct EmulatedLaunch {
  const EmulatedFunction* function;
  emulator::Index3 grid, block;
  uint32_t shared_bytes;
  std::vector<uint64_t> parameters;  // the bytes of each
};

struct EmulatedFault {
  CUresult code;
  std::string text;  // function, line, block, thread, what
};

class BlockRunner {
 public:
  // reversed: the last block and thread first.
  BlockRunner(const EmulatedMemory& memory, bool reversed) : memory_(memory), reversed_(reversed) {}
  // Until all blocks are done, or one is at fault. A function that counts adds to `counts` then.
  std::optional<EmulatedFault> run(const EmulatedLaunch& launch,
                                   std::vector<FunctionCounts>& counts);

  static constexpr uint32_t kMostThreads = 1024, kWarp = 32, kWholeWarp = 0xffffffff;
  // Operand::begin of an operand that is in no allocation: no access to it is good at once.
  static constexpr uint64_t kUnbound = 1;

 private:
  friend struct EmulatorCalls;
  enum class Status : uint8_t { kUnstarted, kRunning, kReady, kAtBarrier, kAtWarp, kDone };
  // Called by the last thread of a group, for the whole group.
  using Complete = void (*)(BlockRunner&, void* const* lanes, uint32_t active);
  struct Copy {
    const emulator::SharedArray* array;
    uint64_t to, from;
    uint32_t bytes;
    int line;
  };
  struct State {
    Status status = Status::kUnstarted;
    size_t fiber = 0;
    // The place of its barrier, its kind, and the other threads.
    emulator::Site site{};
    const char* what = "";
    uint32_t mask = 0;
    Complete complete = nullptr;
    void* given = nullptr;
    bool only_whole_warp = false;
    std::vector<Copy> copies;    // not yet done
    std::vector<size_t> groups;  // how many copies were begun before the end of each
  };
  struct Running : emulator::Thread {
    BlockRunner* runner;
    uint32_t number;
  };

  static Running& of(emulator::Thread& thread) { return static_cast<Running&>(thread); }
  static void run_threads();  // what a fiber does
  void run_block();
  void assign(Fiber& fiber, uint32_t number);
  size_t idle_fiber();
  void make_ready(uint32_t number);
  std::optional<uint32_t> next();
  void leave(Running& thread, bool ended);  // to another thread
  void end(Running& thread);
  void release_barrier();
  void complete_warp(uint32_t any_lane, Running& current);
  void finish_copies(Running& thread, size_t count);
  void tell_counter(uint32_t thread);  // that the lanes of its warp have met, if they have
  Moment now(const Running& thread) const;

  void wait_for_block(Running& thread, emulator::Site site);
  void wait_for_warp(Running& thread, uint32_t mask, const char* what, Complete complete,
                     void* given, emulator::Site site, bool only_whole_warp = false);
  // Records a fault, then abandons the block from the running thread: its frames are not unwound,
  // so nothing in them may own memory.
  EmulatedFault fault_of(uint32_t thread, CUresult code, const std::string& what,
                         emulator::Site site) const;
  void take_fault(const Running& thread, CUresult code, const std::string& what,
                  emulator::Site site) {
    fault_ = fault_of(thread.number, code, what, site);
  }
  EmulatedFault deadlock() const;
  [[noreturn]] void give_up(Running& current);
  std::string place(emulator::Site site) const;

  const EmulatedMemory& memory_;
  const bool reversed_;
  Fibers fibers_;
  std::vector<size_t> idle_;
  size_t begun_fibers_ = 0;  // those before it are prepared
  EmulatedShared shared_;
  EmulatedCounter counter_;
  std::optional<EmulatedFault> fault_;

  const EmulatedLaunch* launch_ = nullptr;
  bool counts_ = false;  // the launch is counted
  std::vector<emulator::Operand> operands_;
  emulator::Index3 block_{};
  uint32_t threads_ = 0, unstarted_ = 0, live_ = 0, at_barrier_ = 0, at_warp_ = 0;
  emulator::Site barrier_{};      // of the first thread that waits
  bool barriers_differ_ = false;  // another waits elsewhere
  uint32_t block_syncs_ = 0;
  std::array<uint32_t, kMostThreads / kWarp> warp_syncs_{};
  std::array<State, kMostThreads> states_;
  std::array<uint16_t, kMostThreads> ready_{};
  uint32_t ready_first_ = 0, ready_count_ = 0;
};

}  // namespace anneal::cuda
