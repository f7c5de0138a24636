// Counts what the threads of a launch do on the emulated device, warp by warp. Threads run one
// after another, so the instructions of a warp are assembled afterwards. One instruction is the
// n-th visit of each lane to a line since the lanes last met (at a barrier, or at the end).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "anneal/core/access_counts.h"
#include "anneal/kernels/cuda/cost/request_cost.h"
#include "anneal/kernels/cuda/device/emulator.h"

namespace anneal::cuda {

class EmulatedCounter {
 public:
  void begin_launch(uint32_t threads, uint64_t blocks);
  // One thread's part in an instruction. memory: of the parameter's number, or the shared array.
  void add(uint32_t thread, emulator::Count kind, emulator::Address at, uint32_t bytes, int operand,
           const emulator::SharedArray* array, emulator::Site site);
  // All lanes of the warp are where they wait for each other, or at their end.
  void lanes_met(uint32_t warp);
  // The counts of the launch. `program` is the source of the function of this name.
  FunctionCounts counts(std::string_view function, std::string_view program) const;

  // How often a warp comes to a line between two meetings and has its addresses looked at; what it
  // does there more often counts like the average of these.
  static constexpr uint32_t kMostLookedAt = 4096;

 private:
  struct Place {
    emulator::Site site;
    emulator::Count kind;
    uint32_t bytes;
    int operand;
    const char* array;  // its name
    bool operator==(const Place&) const;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  // The accesses of a warp at a place since its lanes met.
  struct Trace {
    std::array<uint32_t, 32> times{};  // of each lane
    std::vector<WarpRequest> requests;
  };
  struct Warp {
    std::vector<Trace> traces;      // by place
    std::vector<uint32_t> touched;  // the places of those that are not empty
  };
  uint32_t number_of(const Place& place);
  static SiteCounts cost_of(const Trace& trace, const Place& place);

  std::unordered_map<Place, uint32_t, PlaceHash> numbers_;
  std::vector<Place> places_;
  std::vector<SiteCounts> totals_;  // by place
  std::vector<Warp> warps_;         // of a block
  int64_t all_warps_ = 0;
};

}  // namespace anneal::cuda
