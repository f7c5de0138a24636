// The state of this machine's GPUs for reports, from NVML, the library of nvidia-smi.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/api/libraries.h"

namespace anneal::cuda {

// Cards do not tell everything: what is not set was not told. That of a part of a card (MIG) is the
// whole card's.
struct CardState {
  std::string bus_id;  // "0000:65:00.0"
  std::string name;    // empty: NVML does not know a card there
  std::optional<uint64_t> memory_bytes, used_bytes;
  std::optional<unsigned> busy_percent, memory_busy_percent;  // of the last sample period
  std::optional<unsigned> clock_mhz, memory_clock_mhz;
  std::optional<unsigned> celsius, milliwatts;
};

struct Cards {
  std::string driver_version;  // "580.65.06"
  std::vector<CardState> cards;
  std::string why_not;  // not empty: nothing is known, and why
};
// The PCI bus ids of cuda:0, cuda:1, ...; none if the driver does not start. NVML counts all cards
// of the machine in its own order, but CUDA_VISIBLE_DEVICES hides some cards from the driver and
// reorders the others: bus ids identify the cards.
std::vector<std::string> bus_ids(const Driver& driver);
// REQUIRES: NVML has started.
CardState read_card(const Nvml& nvml, const std::string& bus_id);
// Of the cards at these places, in this order.
Cards read_cards(std::span<const std::string> bus_ids,
                 const LibraryTable<Nvml>& nvml = nvml_library());

// For people: "NVIDIA H100, 400 of 81559 MiB used, 71 % busy".
std::string text_of(const CardState& card);
// A line for each card; or why nothing is known.
std::string text_of(const Cards& cards);

}  // namespace anneal::cuda
