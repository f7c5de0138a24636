// Replaces libnvidia-ml.so.1 where a test needs that library: two cards with made-up figures,
// returned as NVML does when it works.
#include <cstring>

namespace {

struct Card {
  const char *bus_id, *name;
  unsigned long long free_mib;
};
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
  return 6;
}
unsigned nvmlDeviceGetName(void* card, char* text, unsigned size) {
  std::strncpy(text, static_cast<Card*>(card)->name, size);
  return 0;
}
unsigned nvmlDeviceGetMemoryInfo(void* card, unsigned long long* total_free_used) {
  const unsigned long long free_mib = static_cast<Card*>(card)->free_mib;
  total_free_used[0] = 1000ull << 20;
  total_free_used[1] = free_mib << 20;
  total_free_used[2] = (1000 - free_mib) << 20;
  return 0;
}
unsigned nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_memory) {
  gpu_memory[0] = 71;
  gpu_memory[1] = 13;
  return 0;
}
unsigned nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* megahertz) {
  *megahertz = type == 1 ? 1980 : 2619;
  return 0;
}
unsigned nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  *celsius = 41;
  return 0;
}
unsigned nvmlDeviceGetPowerUsage(void*, unsigned*) { return 3; }
}
// NOLINTEND(readability-identifier-naming)
