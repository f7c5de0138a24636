// A libnvidia-ml.so.1 of the functions that Anneal calls, for the cards of the virtual libcuda.so.1
// beside it. Memory in use is that of this process; what a real card measures is constant.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "anneal/kernels/cuda/api/cuda_api.h"

namespace anneal::cuda {
namespace {

// NVML_ERROR_UNINITIALIZED, _INVALID_ARGUMENT, _NOT_FOUND, _INSUFFICIENT_SIZE
constexpr auto kUninitialized = static_cast<nvmlReturn_t>(1),
               kInvalid = static_cast<nvmlReturn_t>(2), kNotFound = static_cast<nvmlReturn_t>(6),
               kTooSmall = static_cast<nvmlReturn_t>(7);
constexpr unsigned kMost = 8;  // cards
int users = 0;

const char* setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

unsigned count() {
  return static_cast<unsigned>(std::atoi(setting("ANNEAL_VIRTUAL_CARD_COUNT", "1")));
}

// A handle is the address of the card's number.
constexpr std::array<unsigned, kMost> kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};
unsigned number_of(nvmlDevice_t card) { return *reinterpret_cast<const unsigned*>(card); }

nvmlReturn_t copy_text(const std::string& text, char* to, unsigned size) {
  if (users == 0) return kUninitialized;
  if (to == nullptr) return kInvalid;
  if (size < text.size() + 1) return kTooSmall;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

template <class T>
nvmlReturn_t tell(nvmlDevice_t card, T* to, T value) {
  if (users == 0) return kUninitialized;
  if (card == nullptr || to == nullptr) return kInvalid;
  *to = value;
  return NVML_SUCCESS;
}

// Null: this process has not opened the driver.
size_t (*used_bytes())(int) {
  Dl_info mine = {};
  if (dladdr(&users, &mine) == 0) return nullptr;
  const std::string path = mine.dli_fname;
  void* const driver = dlopen((path.substr(0, path.rfind('/') + 1) + "libcuda.so.1").c_str(),
                              RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  return reinterpret_cast<size_t (*)(int)>(dlsym(driver, "virtual_card_used_bytes"));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

const char* nvmlErrorString(nvmlReturn_t result) {
  return result == NVML_SUCCESS     ? "Success"
         : result == kUninitialized ? "Uninitialized"
         : result == kInvalid       ? "Invalid Argument"
         : result == kNotFound      ? "Not Found"
         : result == kTooSmall      ? "Insufficient Size"
                                    : "Unknown Error";
}
nvmlReturn_t nvmlInit_v2() {
  ++users;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return copy_text("580.00.00", text, size);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* cards) {
  if (users == 0) return kUninitialized;
  *cards = count();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* card) {
  if (users == 0) return kUninitialized;
  unsigned bus = 0;
  if (std::sscanf(bus_id, "%*x:%x:00.0", &bus) != 1 || bus == 0 || bus > count() || bus > kMost)
    return kNotFound;
  *card = reinterpret_cast<nvmlDevice_t>(const_cast<unsigned*>(&kNumbers[bus - 1]));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t card, char* text, unsigned size) {
  if (card == nullptr) return kInvalid;
  return copy_text(std::string("Virtual card of sm_") + setting("ANNEAL_VIRTUAL_CARD_SM", "90"),
                   text, size);
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t card, nvmlMemory_v2_t* memory) {
  if (card == nullptr || memory == nullptr || memory->version != kNvmlMemoryVersion)
    return kInvalid;
  constexpr unsigned long long kTotal = 8ull << 30, kReserved = 600ull << 20;
  auto* const ask = used_bytes();
  const unsigned long long used = ask == nullptr ? 0 : ask(static_cast<int>(number_of(card)));
  return tell(
      card, memory,
      nvmlMemory_v2_t{kNvmlMemoryVersion, kTotal, kReserved, kTotal - kReserved - used, used});
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t card, nvmlUtilization_t* busy) {
  return tell(card, busy, nvmlUtilization_t{0, 0});
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t card, nvmlClockType_t type, unsigned* megahertz) {
  return tell(card, megahertz, type == NVML_CLOCK_SM ? 1000u : 2000u);
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t card, nvmlTemperatureSensors_t,
                                      unsigned* celsius) {
  return tell(card, celsius, 40u);
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t card, unsigned* milliwatts) {
  return tell(card, milliwatts, 100000u);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

}  // namespace anneal::cuda
