// NVML from its start to its shutdown: the state of all cards of the machine and the processes that
// compute on them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/cli/monitor/nvml_api.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/api/monitor.h"

namespace anneal {

// What is not set was not told.
struct CardSample {
  cuda::CardState state;
  std::optional<unsigned> index;  // in NVML's order, as nvidia-smi counts
  std::optional<unsigned> minor;  // of /dev/nvidiaN
  std::optional<unsigned> fan_percent, performance_state, graphics_clock_mhz;
  std::optional<unsigned> limit_milliwatts;     // that was set
  std::optional<unsigned> enforced_milliwatts;  // the least of all limits
  std::string uuid;
};

struct CardProcess {
  int pid = 0;
  std::optional<uint64_t> used_bytes;  // on the card
};

// One thread at a time. Without NVML there are no cards, and why_not() says why.
class NvmlSession {
 public:
  explicit NvmlSession(const cuda::LibraryTable<cuda::Nvml>& opened = cuda::nvml_library());
  ~NvmlSession();
  NvmlSession(const NvmlSession&) = delete;
  NvmlSession& operator=(const NvmlSession&) = delete;

  const std::string& why_not() const { return why_not_; }
  const std::string& driver_version() const { return driver_version_; }
  size_t card_count() const { return cards_.size(); }
  CardSample read(size_t card) const;
  std::vector<CardProcess> processes(size_t card) const;

 private:
  struct Card {
    cuda::nvmlDevice_t handle = nullptr;
    CardSample sample;  // what does not change
  };

  void find_functions(const std::string& path);
  void find_cards();

  std::optional<cuda::Nvml> nvml_;  // set while NVML is started
  cuda::MonitoredNvml more_;
  std::vector<Card> cards_;
  std::string why_not_, driver_version_;
};

}  // namespace anneal
