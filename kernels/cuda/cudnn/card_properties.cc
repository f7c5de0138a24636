// The keys are those that cuDNN asks for. Sizes of multiprocessors are those of the CUDA C++
// Programming Guide 13.0, table "Technical Specifications per Compute Capability"; multiprocessors,
// clocks and memory are those of NVIDIA's data sheets and whitepapers. None was read from a card,
// so the exact bytes of memory and the clocks may differ from what a card reports.
#include "anneal/kernels/cuda/cudnn/card_properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace anneal::cuda {
namespace {

constexpr int kMiB = 1 << 20, kKiB = 1 << 10;
constexpr int64_t kGiB = int64_t{1} << 30;

constexpr std::array<CardProperties, 13> kCards = {{
    {"A100 SXM 40GB", "NVIDIA A100-SXM4-40GB", 80, 108, 163 * kKiB, 2048, 32, 40 * kGiB, 1410000,
     1215000, 40 * kMiB},
    {"A100 SXM 80GB", "NVIDIA A100-SXM4-80GB", 80, 108, 163 * kKiB, 2048, 32, 80 * kGiB, 1410000,
     1593000, 40 * kMiB},
    {"A30", "NVIDIA A30", 80, 56, 163 * kKiB, 2048, 32, 24 * kGiB, 1440000, 1215000, 24 * kMiB},
    {"A10", "NVIDIA A10", 86, 72, 99 * kKiB, 1536, 16, 24 * kGiB, 1695000, 6251000, 6 * kMiB},
    {"L4", "NVIDIA L4", 89, 58, 99 * kKiB, 1536, 24, 24 * kGiB, 2040000, 6251000, 48 * kMiB},
    {"L40S", "NVIDIA L40S", 89, 142, 99 * kKiB, 1536, 24, 48 * kGiB, 2520000, 9001000, 96 * kMiB},
    {"RTX 4090", "NVIDIA GeForce RTX 4090", 89, 128, 99 * kKiB, 1536, 24, 24 * kGiB, 2520000,
     10501000, 72 * kMiB},
    {"H100 SXM", "NVIDIA H100 80GB HBM3", 90, 132, 227 * kKiB, 2048, 32, 80 * kGiB, 1980000,
     2619000, 50 * kMiB},
    {"H100 PCIe", "NVIDIA H100 PCIe", 90, 114, 227 * kKiB, 2048, 32, 80 * kGiB, 1755000, 1593000,
     50 * kMiB},
    {"H100 NVL", "NVIDIA H100 NVL", 90, 132, 227 * kKiB, 2048, 32, 94 * kGiB, 1785000, 2619000,
     50 * kMiB},
    {"H200", "NVIDIA H200", 90, 132, 227 * kKiB, 2048, 32, 141 * kGiB, 1980000, 3201000, 50 * kMiB},
    {"B200", "NVIDIA B200", 100, 148, 227 * kKiB, 2048, 32, 180 * kGiB, 1965000, 3996000,
     126 * kMiB},
    {"RTX 5090", "NVIDIA GeForce RTX 5090", 120, 170, 99 * kKiB, 1536, 24, 32 * kGiB, 2407000,
     14001000, 96 * kMiB},
}};

// The whole number behind "key": in a flat JSON object.
std::optional<int> number_behind(std::string_view json, std::string_view key) {
  const size_t at = json.find(fmt::format("\"{}\"", key));
  if (at == std::string_view::npos) return std::nullopt;
  json.remove_prefix(at + key.size() + 2);
  json.remove_prefix(std::min(json.find_first_not_of(" \t\r\n:"), json.size()));
  int number = 0;
  const auto [end, failed] = std::from_chars(json.data(), json.data() + json.size(), number);
  return failed == std::errc{} && number > 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

std::span<const CardProperties> card_properties() { return kCards; }

const CardProperties* find_card(std::string_view name) {
  const auto found = std::ranges::find(kCards, name, &CardProperties::name);
  return found == kCards.end() ? nullptr : &*found;
}

std::string json_of(const CardProperties& card) {
  return fmt::format(
      "{{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
      "\"regsPerBlock\":65536,\"multiProcessorCount\":{},\"warpSize\":32,"
      "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":{},"
      "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":{},"
      "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":{},\"pciDeviceId\":0,\"isTccDriver\":0,"
      "\"supportCoopLaunch\":1,\"totalGlobalMem\":{},\"smClockRateKHz\":{},\"memClockRateKHz\":{},"
      "\"l2CacheSize\":{},\"cudaDeviceId\":0,\"deviceVer\":{},\"driverVer\":13000,"
      "\"deviceName\":\"{}\"}}",
      card.multiprocessors, card.shared_bytes_per_block, card.blocks_per_multiprocessor,
      card.threads_per_multiprocessor, card.memory_bytes, card.clock_khz, card.memory_clock_khz,
      card.l2_bytes, 10 * card.architecture, card.device_name);
}

std::optional<PropertyFigures> figures_of(std::string_view json) {
  const auto version = number_behind(json, "deviceVer");
  const auto multiprocessors = number_behind(json, "multiProcessorCount");
  const auto shared = number_behind(json, "maxSharedMemoryPerBlockOptin");
  if (!version || !multiprocessors || !shared) return std::nullopt;
  return PropertyFigures{*version / 10, *multiprocessors, *shared};
}

std::string to_string(const PropertyFigures& figures) {
  return fmt::format("sm_{} with {} multiprocessors and {} bytes of shared memory",
                     figures.architecture, figures.multiprocessors, figures.shared_bytes_per_block);
}

}  // namespace anneal::cuda
