#include "anneal/cli/monitor/nvml_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "anneal/core/library.h"

namespace anneal {
namespace {

constexpr unsigned kTextBytes = 96;  // the longest text that NVML asks for

// The answer of a function that writes one number; nullopt if NVML lacks it or does not tell.
template <class Number>
std::optional<unsigned> number_of(cuda::nvmlReturn_t (*function)(cuda::nvmlDevice_t, Number*),
                                  cuda::nvmlDevice_t card) {
  Number value = 0;
  if (function == nullptr || function(card, &value) != cuda::NVML_SUCCESS) return std::nullopt;
  return static_cast<unsigned>(value);
}

}  // namespace

NvmlSession::NvmlSession(const cuda::LibraryTable<cuda::Nvml>& opened) {
  if (!opened.table) {
    why_not_ = fmt::format("there is no NVML here ({})", opened.why_not);
    return;
  }
  const cuda::nvmlReturn_t started = opened.table->nvmlInit_v2();
  if (started != cuda::NVML_SUCCESS) {
    why_not_ = fmt::format("NVML does not start: {}", opened.table->nvmlErrorString(started));
    return;
  }
  nvml_ = opened.table;
  char version[kTextBytes] = {};
  if (nvml_->nvmlSystemGetDriverVersion(version, kTextBytes) == cuda::NVML_SUCCESS)
    driver_version_ = version;
  find_functions(opened.path);
  find_cards();
}

NvmlSession::~NvmlSession() {
  if (nvml_) nvml_->nvmlShutdown();
}

void NvmlSession::find_functions(const std::string& path) {
  const auto library = Library::open(path);
  if (!library) return;
#define X(function, ...)                                 \
  if (void* const found = library->find(#function)) {    \
    std::memcpy(&more_.function, &found, sizeof(found)); \
  }
  ANNEAL_FOR_EACH_MONITORED_NVML_FUNCTION(X)
#undef X
}

void NvmlSession::find_cards() {
  unsigned count = 0;
  if (nvml_->nvmlDeviceGetCount_v2(&count) != cuda::NVML_SUCCESS) count = 0;
  if (!more_.nvmlDeviceGetHandleByIndex_v2 || !more_.nvmlDeviceGetPciInfo_v3) {
    why_not_ =
        "NVML has no nvmlDeviceGetHandleByIndex_v2() or no nvmlDeviceGetPciInfo_v3(); install a "
        "newer driver";
    return;
  }
  for (unsigned index = 0; index < count; ++index) {
    Card card;
    cuda::nvmlPciInfo_t place = {};
    // A card that this process may not use has no handle.
    if (more_.nvmlDeviceGetHandleByIndex_v2(index, &card.handle) != cuda::NVML_SUCCESS ||
        more_.nvmlDeviceGetPciInfo_v3(card.handle, &place) != cuda::NVML_SUCCESS)
      continue;
    card.sample.index = index;
    card.sample.state.bus_id = std::string(place.busId, strnlen(place.busId, sizeof(place.busId)));
    card.sample.minor = number_of(more_.nvmlDeviceGetMinorNumber, card.handle);
    char uuid[kTextBytes] = {};
    if (more_.nvmlDeviceGetUUID &&
        more_.nvmlDeviceGetUUID(card.handle, uuid, kTextBytes) == cuda::NVML_SUCCESS)
      card.sample.uuid = uuid;
    cards_.push_back(std::move(card));
  }
  if (cards_.empty()) why_not_ = "NVML shows no GPU that this process may use";
}

CardSample NvmlSession::read(size_t card) const {
  const cuda::nvmlDevice_t handle = cards_[card].handle;
  CardSample sample = cards_[card].sample;
  sample.state = cuda::read_card(*nvml_, sample.state.bus_id);
  sample.fan_percent = number_of(more_.nvmlDeviceGetFanSpeed, handle);
  const auto state = number_of(more_.nvmlDeviceGetPerformanceState, handle);
  if (state && *state < cuda::NVML_PSTATE_UNKNOWN) sample.performance_state = state;
  unsigned megahertz = 0;
  if (nvml_->nvmlDeviceGetClockInfo(handle, cuda::NVML_CLOCK_GRAPHICS, &megahertz) ==
      cuda::NVML_SUCCESS)
    sample.graphics_clock_mhz = megahertz;
  sample.limit_milliwatts = number_of(more_.nvmlDeviceGetPowerManagementLimit, handle);
  sample.enforced_milliwatts = number_of(more_.nvmlDeviceGetEnforcedPowerLimit, handle);
  return sample;
}

std::vector<CardProcess> NvmlSession::processes(size_t card) const {
  const auto list = more_.nvmlDeviceGetComputeRunningProcesses_v3;
  if (list == nullptr) return {};
  std::vector<cuda::nvmlProcessInfo_t> found;
  unsigned count = 0;
  cuda::nvmlReturn_t result = list(cards_[card].handle, &count, nullptr);
  // More processes may begin between the two calls.
  constexpr int kTries = 3;
  constexpr unsigned kSpare = 8;
  for (int i = 0; i < kTries && result == cuda::NVML_ERROR_INSUFFICIENT_SIZE; ++i) {
    found.resize(count += kSpare);
    result = list(cards_[card].handle, &count, found.data());
  }
  if (result != cuda::NVML_SUCCESS) return {};
  found.resize(std::min<size_t>(count, found.size()));
  std::vector<CardProcess> processes;
  for (const cuda::nvmlProcessInfo_t& each : found) {
    CardProcess process{static_cast<int>(each.pid), {}};
    if (each.usedGpuMemory != cuda::NVML_VALUE_NOT_AVAILABLE)
      process.used_bytes = each.usedGpuMemory;
    processes.push_back(process);
  }
  return processes;
}

}  // namespace anneal
