// What happens before what: each call that gives work to a stream has a vector clock, and two calls
// that use the same memory without an order are reported by name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "anneal/tests/virtual_card/ptx/touched.h"

namespace anneal::virtual_card {

// By the slot of a stream: as many of its works come before.
using Clock = std::vector<uint64_t>;
void join(Clock& into, const Clock& with);

// A call whose work a stream has, or had.
struct Call {
  std::string name, stream;  // "cuLaunchKernel(f)", "stream 2"
  size_t slot = 0;           // of the stream
  uint64_t number = 0;       // of its works
  uint64_t sequence = 0;     // of all calls
  Clock clock;               // with its own number
};
bool is_before(const Call& first, const Call& second);

// Memory of calls that are done, until every later call comes after them.
class Order {
 public:
  // Fails the process if an earlier call uses the same bytes and is not ordered.
  void note(const std::shared_ptr<const Call>& call, ptx::Touched& touched);
  void note_host(const std::shared_ptr<const Call>& call, uint64_t begin, uint64_t end,
                 bool is_written);
  // Memory that was freed, of the device by its address.
  void forget(uint64_t address) { device_.erase(address); }
  void forget_host(uint64_t begin, uint64_t end);
  // Fails the process if this thread does not come after a call that uses memory of the host, which
  // it frees by `call`.
  void check_host_free(const std::string& call, uint64_t begin, uint64_t end);
  // The host has waited for what the clock counts, which every later call comes after. Calls from
  // `pending` on are not done, and the next one has the number `next`.
  void wait(const Clock& clock, uint64_t pending, uint64_t next);

  // What comes before the calls of this thread. All threads of the host are one, because a driver
  // does not see their mutexes: what one has waited for comes before the calls of all. With threads
  // apart, it comes before the calls of the thread itself, of those that begin to call later, and
  // once the thread has ended of all.
  const Clock& host() { return is_apart_ ? threads_.at(std::this_thread::get_id()) : host_; }
  void set_threads_apart(bool is_apart) { is_apart_ = is_apart; }
  // Of this thread: before its first call, and behind its last one.
  void begin_thread() { threads_.try_emplace(std::this_thread::get_id(), host_); }
  void end_thread();

 private:
  struct Use {
    std::shared_ptr<const Call> call{};
    std::shared_ptr<const ptx::TouchedBytes> bytes{};  // of memory of the device
    uint64_t begin = 0, end = 0;                       // of memory of the host
    bool is_written = false;
    uint64_t waited_at = 0;  // calls from this one on come after it; 0: not known
  };
  void retire(std::vector<Use>& uses, uint64_t pending, uint64_t next) const;
  bool is_known_to_all(const Call& call) const;

  bool is_apart_ = false;
  Clock host_;  // of all threads
  std::map<std::thread::id, Clock> threads_;
  std::map<uint64_t, std::vector<Use>> device_;  // by the address of the allocation
  std::vector<Use> on_host_;
};

}  // namespace anneal::virtual_card
