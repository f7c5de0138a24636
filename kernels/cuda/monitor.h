// The state of this machine's cards, for reports: what NVML, the library behind nvidia-smi, tells.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/libraries.h"

namespace anneal::cuda {

// Cards do not tell everything: what is not set was not told.
struct CardState {
  std::string name;
  std::optional<uint64_t> memory_bytes, used_bytes;
  std::optional<unsigned> busy_percent, memory_busy_percent;  // of the last sample period
  std::optional<unsigned> clock_mhz, memory_clock_mhz;
  std::optional<unsigned> celsius, milliwatts;
};

struct Cards {
  std::string driver_version;    // "580.65.06"
  std::vector<CardState> cards;  // in NVML's order, which may not be that of cuda:0, cuda:1
  std::string why_not;           // not empty: nothing is known, and why
};
Cards read_cards(const Opened<Nvml>& nvml = nvml_library());

// For people, a line for each card; or why nothing is known.
std::string text_of(const Cards& cards);

}  // namespace anneal::cuda
