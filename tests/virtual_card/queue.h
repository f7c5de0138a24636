// Streams of the virtual card, whose work threads of its own do: as late as the caller's waits
// allow or, with a seed, in an order that the seed chooses.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/api/cuda_api.h"
#include "anneal/tests/virtual_card/order.h"

namespace anneal::virtual_card {

using namespace cuda;

// The call does not succeed.
struct Refusal {
  CUresult result;
  std::string text;
};

// The caller broke a rule of the driver that the driver itself would not notice: the process ends.
[[noreturn]] void report_violation(const std::string& what);

struct Capture;
struct Context;
struct Module;
struct Stream;

// A place in a stream: as many works of it are done.
struct Reached {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;
};

struct Event {
  Context* context = nullptr;
  bool has_time = true;
  const Capture* captured = nullptr;  // that holds the last record
  Reached recorded;                   // no stream: never
  Clock clock;                        // of the record
  double milliseconds = 0;
};

// While a work is done.
struct Running {
  uint32_t launch = 0;  // none of the context has the same
  std::optional<uint64_t> host_hash;
  ptx::Touched touched;
  uint64_t steps = 0;
};

uint64_t hash_of(const std::byte* bytes, size_t count);

struct Work {
  std::string call{};                     // for messages
  std::function<void(Running&)> run{};    // null: a mark
  const Module* module = nullptr;         // of the function that is launched
  uint64_t host_begin = 0, host_end = 0;  // memory of the host that is copied
  bool is_host_written = false;
  uint64_t page_locked = 0;  // the number of that memory, if it is page-locked
  // Memory of the device that is copied or filled: an address in it, and the allocation's number.
  std::vector<std::pair<uint64_t, uint64_t>> allocations{};
  std::vector<Reached> after{};
  std::shared_ptr<Event> records{};
};

// Memory of the host that a copy reads. It must be as it was at the call, by its hash.
std::vector<std::byte> read_unchanged(uint64_t from, size_t bytes, const std::string& call,
                                      std::optional<uint64_t> hash);

struct Graph {
  std::vector<Work> works;
  Reached launched;  // the end of the last launch, which the next one comes after
  Clock clock;
};

struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool is_valid = true;
};

struct Stream {
  struct Queued {
    Work work;
    std::shared_ptr<Call> call;
    std::optional<uint64_t> host_hash;
    bool is_mark = false;
  };

  Context* context = nullptr;
  std::string name;
  bool is_default = false, is_blocking = false;  // ordered with the default stream
  size_t slot = 0;
  // Works; those up to `due` may be done now, and the host waits for those up to `waited`.
  uint64_t added = 0, done = 0, due = 0, waited = 0;
  Clock clock;  // of the last work that was added
  std::deque<Queued> works;
  // Done by chance: the host does not know, and must leave their memory as it is.
  std::deque<Queued> early;
  bool is_running = false;  // the first work
  std::unique_ptr<Capture> capture;
};

// All streams of the machine. Every function REQUIRES its mutex, the one of the machine.
class Queues {
 public:
  Queues(std::mutex& mutex, uint64_t seed) : mutex_(mutex), seed_(seed), random_(seed) {}

  std::shared_ptr<Stream> make(Context& context);
  // REQUIRES: nothing is left.
  void destroy(const std::shared_ptr<Stream>& stream);
  void add(const std::shared_ptr<Stream>& stream, Work work);
  // Until the stream has reached it; other threads call meanwhile. The host comes after it.
  void wait(const Reached& reached, const Clock& clock);
  void wait(const std::shared_ptr<Stream>& stream) { wait({stream, stream->added}, stream->clock); }
  // Until all works of the context are done, of which the host learns nothing.
  void finish(const Context& context);
  // Of works that are not known to be done; null: none.
  const Work* find(const Context& context, const std::function<bool(const Work&)>& is_it) const;
  static const Work* find(const Stream& stream);  // that is no mark

  Order& order() { return order_; }
  uint64_t steps() const { return steps_; }           // instructions of warps, in all launches
  int most_running() const { return most_running_; }  // works at the same time

 private:
  void demand(Stream& stream, uint64_t number);
  void demand_for_host(Stream& stream, uint64_t number);
  static bool may_be_early(const Stream& stream, uint64_t number);
  void let_some_run();
  void start();
  [[noreturn]] void serve();
  Stream* next();
  void run(Stream& stream);
  std::string unordered(const Call& call, const Context& context) const;
  uint64_t first_pending() const;
  bool is_reached(const Reached& reached) const { return reached.stream->done >= reached.number; }

  std::mutex& mutex_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::condition_variable_any changed_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<size_t> free_slots_;
  std::vector<uint64_t> slot_ends_;  // works of the streams that have had the slot
  uint64_t sequence_ = 1, steps_ = 0;
  int running_ = 0, most_running_ = 0;
  bool is_started_ = false;
  Order order_;
};

}  // namespace anneal::virtual_card
