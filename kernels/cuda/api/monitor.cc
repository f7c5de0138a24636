#include "anneal/kernels/cuda/api/monitor.h"

#include <fmt/format.h>

namespace anneal::cuda {
namespace {

constexpr unsigned kNameBytes = 96;  // as NVML asks for

template <class T>
std::optional<T> told(nvmlReturn_t result, T value) {
  return result == NVML_SUCCESS ? std::optional<T>(value) : std::nullopt;
}

}  // namespace

CardState read_card(const Nvml& nvml, const std::string& bus_id) {
  CardState state;
  state.bus_id = bus_id;
  nvmlDevice_t card = nullptr;
  if (nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id.c_str(), &card) != NVML_SUCCESS) return state;
  char name[kNameBytes] = {};
  if (nvml.nvmlDeviceGetName(card, name, kNameBytes) == NVML_SUCCESS) state.name = name;
  // Without the memory that the driver reserves, as nvidia-smi.
  nvmlMemory_v2_t memory = {};
  memory.version = kNvmlMemoryVersion;
  if (nvml.nvmlDeviceGetMemoryInfo_v2(card, &memory) == NVML_SUCCESS) {
    state.memory_bytes = memory.total;
    state.used_bytes = memory.used;
  }
  nvmlUtilization_t busy = {};
  if (nvml.nvmlDeviceGetUtilizationRates(card, &busy) == NVML_SUCCESS) {
    state.busy_percent = busy.gpu;
    state.memory_busy_percent = busy.memory;
  }
  const auto clock = [&](nvmlClockType_t which) {
    unsigned mhz = 0;
    const nvmlReturn_t result = nvml.nvmlDeviceGetClockInfo(card, which, &mhz);
    return told(result, mhz);
  };
  state.clock_mhz = clock(NVML_CLOCK_SM);
  state.memory_clock_mhz = clock(NVML_CLOCK_MEM);
  unsigned celsius = 0, milliwatts = 0;
  const nvmlReturn_t warm = nvml.nvmlDeviceGetTemperature(card, NVML_TEMPERATURE_GPU, &celsius);
  state.celsius = told(warm, celsius);
  const nvmlReturn_t fed = nvml.nvmlDeviceGetPowerUsage(card, &milliwatts);
  state.milliwatts = told(fed, milliwatts);
  return state;
}

std::string text_of(const CardState& card) {
  constexpr double kMi = 1 << 20;
  std::string text = card.name.empty() ? "a card that NVML does not know" : card.name;
  if (card.memory_bytes && card.used_bytes)
    text += fmt::format(", {:.0f} of {:.0f} MiB used", static_cast<double>(*card.used_bytes) / kMi,
                        static_cast<double>(*card.memory_bytes) / kMi);
  if (card.busy_percent) text += fmt::format(", {} % busy", *card.busy_percent);
  if (card.memory_busy_percent) text += fmt::format(" ({} % memory)", *card.memory_busy_percent);
  if (card.clock_mhz) text += fmt::format(", {} MHz", *card.clock_mhz);
  if (card.memory_clock_mhz) text += fmt::format(", memory {} MHz", *card.memory_clock_mhz);
  if (card.celsius) text += fmt::format(", {} C", *card.celsius);
  if (card.milliwatts) text += fmt::format(", {:.1f} W", *card.milliwatts / 1000.0);
  return text;
}

std::vector<std::string> bus_ids(const Driver& driver) {
  constexpr int kIdBytes = 32;
  int count = 0;
  if (driver.cuInit(0) != CUDA_SUCCESS || driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
    return {};
  std::vector<std::string> ids;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    char id[kIdBytes] = {};
    if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS)
      driver.cuDeviceGetPCIBusId(id, kIdBytes, device);
    ids.emplace_back(id);
  }
  return ids;
}

Cards read_cards(std::span<const std::string> bus_ids, const LibraryTable<Nvml>& opened) {
  if (!opened.table) return {{}, {}, fmt::format("there is no NVML here ({})", opened.why_not)};
  const Nvml& nvml = *opened.table;
  const nvmlReturn_t begun = nvml.nvmlInit_v2();
  if (begun != NVML_SUCCESS)
    return {{}, {}, fmt::format("NVML does not start: {}", nvml.nvmlErrorString(begun))};
  Cards cards;
  char version[kNameBytes] = {};
  if (nvml.nvmlSystemGetDriverVersion(version, kNameBytes) == NVML_SUCCESS)
    cards.driver_version = version;
  for (const std::string& bus_id : bus_ids) cards.cards.push_back(read_card(nvml, bus_id));
  nvml.nvmlShutdown();
  return cards;
}

std::string text_of(const Cards& cards) {
  if (!cards.why_not.empty()) return cards.why_not + "\n";
  std::string text = fmt::format("driver {}\n", cards.driver_version);
  for (const CardState& card : cards.cards) text += text_of(card) + "\n";
  return text;
}

}  // namespace anneal::cuda
