// Streams, events and graphs of the emulated device. Work on a stream is done when a caller waits
// for it and not earlier, so that a missing wait shows.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/kernels/cuda/emulated/block.h"

namespace anneal::cuda {

class EmulatedStream;
// Adds to the counts of its stream.
using EmulatedWork = std::function<std::optional<EmulatedFault>(std::vector<FunctionCounts>&)>;
using EmulatedGraph = std::vector<EmulatedWork>;

struct EmulatedEvent {
  uint64_t recorded = 0, done = 0;  // how often it was put on a stream, and reached
  double milliseconds = 0;          // when it was reached last
};

class EmulatedStream {
 public:
  void add(EmulatedWork work);
  void record(const std::shared_ptr<EmulatedEvent>& event);
  // Later work waits for the work before the last record of `event`, on `other`.
  void wait_for(const std::shared_ptr<EmulatedEvent>& event,
                const std::shared_ptr<EmulatedStream>& other);

  // All that is on it, or up to an event; stops at a fault.
  std::optional<EmulatedFault> run();
  std::optional<EmulatedFault> run_until(const EmulatedEvent& event, uint64_t times);

  // The counts of functions since the last call.
  std::vector<FunctionCounts> take_counts() { return std::exchange(counts_, {}); }

  // While it captures, add() takes down. One that is not allowed invalidates.
  void begin_capture(CUstreamCaptureMode mode);
  bool captures() const { return capture_ != nullptr; }
  // Whether a call that no capture may meet ends this one: made by `thread`, which is in `mode`.
  bool forbids(std::thread::id thread, CUstreamCaptureMode mode) const;
  void invalidate() { capture_->valid = false; }
  std::shared_ptr<EmulatedGraph> end_capture();  // null if it was invalidated

 private:
  struct Item {
    EmulatedWork work;                     // or
    std::shared_ptr<EmulatedEvent> event;  // reached, or waited for on another stream:
    std::shared_ptr<EmulatedStream> waits_on;
    uint64_t times = 0;
  };
  struct Capture {
    CUstreamCaptureMode mode;
    std::thread::id thread;
    bool valid = true;
    EmulatedGraph graph;
  };
  std::deque<Item> items_;
  std::unique_ptr<Capture> capture_;
  std::vector<FunctionCounts> counts_;
};

}  // namespace anneal::cuda
