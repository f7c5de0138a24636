// Stands in for libnvidia-ml.so.1 where a test wants that library: one card with made-up figures,
// given as what NVML says when it works.
#include <cstring>

namespace {
int the_card;
}

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
  *count = 1;
  return 0;
}
unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &the_card;
  return index == 0 ? 0 : 2;
}
unsigned nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::strncpy(text, "NVIDIA Made-up 1", size);
  return 0;
}
unsigned nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 1000ull << 20;
  total_free_used[1] = 600ull << 20;
  total_free_used[2] = 400ull << 20;
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
