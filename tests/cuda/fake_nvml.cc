// Replaces libnvidia-ml.so.1 where a test needs that library: two cards with made-up figures,
// returned as NVML does when it works. What the first card does not support, the second does, but
// for the power that is drawn. Two processes compute on the first card.
#include <cstdio>
#include <cstring>

namespace {

struct Card {
  const char *bus_id, *name;
  unsigned long long free_mib;
};
constexpr unsigned kInvalid = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7;
struct PciInfo {
  char legacy_bus_id[16];
  unsigned numbers[5];
  char bus_id[32];
};
struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned instances[2];
};
constexpr Process kProcesses[] = {{4001, 300ull << 20, {~0u, ~0u}}, {4002, ~0ull, {~0u, ~0u}}};

Card cards[] = {{"0000:0A:00.0", "NVIDIA Made-up 1", 600},
                {"0000:0B:00.0", "NVIDIA Made-up 2", 900}};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
const char* nvmlErrorString(unsigned result) { return result == 3 ? "Not Supported" : "Success"; }
unsigned nvmlInit_v2() { return 0; }
unsigned nvmlShutdown() { return 0; }
unsigned nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}
unsigned nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
unsigned nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  for (Card& card : cards)
    if (std::strcmp(card.bus_id, bus_id) == 0) {
      *device = &card;
      return 0;
    }
  return kNotFound;
}
unsigned nvmlDeviceGetName(void* card, char* text, unsigned size) {
  std::strncpy(text, static_cast<Card*>(card)->name, size);
  return 0;
}
// The driver reserves another 24 MiB.
unsigned nvmlDeviceGetMemoryInfo_v2(void* card,
                                    unsigned long long* version_total_reserved_free_used) {
  constexpr unsigned kVersion = 2u << 24 | 40;
  if (static_cast<unsigned>(version_total_reserved_free_used[0]) != kVersion) return kInvalid;
  const unsigned long long free_mib = static_cast<Card*>(card)->free_mib;
  version_total_reserved_free_used[1] = 1000ull << 20;
  version_total_reserved_free_used[2] = 24ull << 20;
  version_total_reserved_free_used[3] = free_mib << 20;
  version_total_reserved_free_used[4] = (1000 - free_mib) << 20;
  return 0;
}
unsigned nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_memory) {
  gpu_memory[0] = 71;
  gpu_memory[1] = 13;
  return 0;
}
unsigned nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* megahertz) {
  *megahertz = type == 0 ? 1755 : type == 1 ? 1980 : 2619;
  return 0;
}
unsigned nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  *celsius = 41;
  return 0;
}
unsigned nvmlDeviceGetPowerUsage(void*, unsigned*) { return kNotSupported; }
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= 2) return kNotFound;
  *device = &cards[index];
  return 0;
}
unsigned nvmlDeviceGetPciInfo_v3(void* card, PciInfo* place) {
  std::strncpy(place->bus_id, static_cast<Card*>(card)->bus_id, sizeof(place->bus_id));
  return 0;
}
unsigned nvmlDeviceGetUUID(void* card, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%d", static_cast<int>(static_cast<Card*>(card) - cards));
  return 0;
}
// Other numbers than the indices: /dev/nvidia5 is the first card's.
unsigned nvmlDeviceGetMinorNumber(void* card, unsigned* number) {
  *number = card == &cards[0] ? 5 : 4;
  return 0;
}
unsigned nvmlDeviceGetFanSpeed(void* card, unsigned* percent) {
  *percent = 35;
  return card == &cards[0] ? kNotSupported : 0;
}
unsigned nvmlDeviceGetPerformanceState(void* card, unsigned* state) {
  *state = card == &cards[0] ? 32 : 2;
  return 0;
}
unsigned nvmlDeviceGetEnforcedPowerLimit(void* card, unsigned* milliwatts) {
  *milliwatts = 350500;
  return card == &cards[0] ? kNotSupported : 0;
}
unsigned nvmlDeviceGetPowerManagementLimit(void*, unsigned* milliwatts) {
  *milliwatts = 400000;
  return 0;
}
unsigned nvmlDeviceGetComputeRunningProcesses_v3(void* card, unsigned* count, Process* processes) {
  const unsigned here = card == &cards[0] ? 2 : 0, room = *count;
  *count = here;
  if (room < here) return kInsufficientSize;
  for (unsigned i = 0; i < here; ++i) processes[i] = kProcesses[i];
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
