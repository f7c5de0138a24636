#include "anneal/tests/virtual_card/ptx/speed.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>

namespace anneal::ptx {
namespace {

class Speed {
 public:
  ~Speed() {
    const char* const wanted = std::getenv("ANNEAL_VIRTUAL_CARD_SPEED");
    const std::lock_guard lock(mutex_);
    if (wanted == nullptr || std::string_view(wanted) != "1" || count_ == 0) return;
    std::fprintf(stderr,
                 "virtual card: %.1f million instructions of warps in %.2f s of one core, %.1f "
                 "million per second\n",
                 1e-6 * static_cast<double>(count_), seconds_,
                 1e-6 * static_cast<double>(count_) / seconds_);
  }
  void add(uint64_t count, double seconds) {
    const std::lock_guard lock(mutex_);
    count_ += count;
    seconds_ += seconds;
  }

 private:
  std::mutex mutex_;
  uint64_t count_ = 0;
  double seconds_ = 0;
};

Speed& speed() {
  static Speed only;
  return only;
}

}  // namespace

void count_instructions(uint64_t count, double seconds) { speed().add(count, seconds); }

double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace anneal::ptx
