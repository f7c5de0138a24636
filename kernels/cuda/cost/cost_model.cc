#include "anneal/kernels/cuda/cost/cost_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"

namespace anneal::cuda {
namespace {

constexpr int kRegisterGranule = 256;  // a warp gets a multiple
constexpr int kWarp = 32;
constexpr int kReservedShared = 1024;  // of each block, for the system

}  // namespace

int resident_blocks(const DeviceSpec& spec, const Work& work) {
  if (work.shared_bytes_per_block > spec.shared_bytes_per_block) return 0;
  const auto warps = static_cast<int>(ceil_div(work.threads_per_block, kWarp));
  int most =
      std::min(spec.blocks_per_multiprocessor, spec.threads_per_multiprocessor / (warps * kWarp));
  most = std::min(
      most, spec.shared_bytes_per_multiprocessor / (work.shared_bytes_per_block + kReservedShared));
  if (work.registers_per_thread > 0) {
    const auto of_warp = static_cast<int>(
        ceil_div(work.registers_per_thread * kWarp, kRegisterGranule) * kRegisterGranule);
    most = std::min(most, spec.registers_per_multiprocessor / of_warp / warps);
  }
  return most;
}

Floor floor_of(const DeviceSpec& spec, const Work& work) {
  check(work.blocks >= 1 && work.threads_per_block >= 1, "a launch has threads");
  Floor floor = {};
  floor.resident_blocks = resident_blocks(spec, work);
  const int64_t per_wave = int64_t{spec.multiprocessors} * std::max(floor.resident_blocks, 1);
  floor.waves = ceil_div(work.blocks, per_wave);
  const double average = static_cast<double>(work.blocks) / spec.multiprocessors;
  floor.imbalance = static_cast<double>(ceil_div(work.blocks, spec.multiprocessors)) / average;
  floor.memory_seconds = work.bytes / spec.bandwidth;
  floor.arithmetic_seconds =
      (work.f32_flops / spec.f32_flops + work.f16_tensor_flops / spec.f16_tensor_flops) *
      floor.imbalance;
  floor.seconds = spec.launch_seconds + std::max(floor.memory_seconds, floor.arithmetic_seconds);
  return floor;
}

double seconds_of(const DeviceSpec& spec, const TiledWork& work) {
  // That one multiprocessor gets.
  const int64_t most_blocks = std::max<int64_t>(ceil_div(work.blocks, spec.multiprocessors), 1);
  const auto at_once =
      static_cast<double>(std::min<int64_t>(most_blocks, std::max(work.resident_blocks, 1)));
  const double busy = std::min(1.0, at_once * work.threads_per_block / work.full_rate_threads);
  const double rate = work.operations_per_second / spec.multiprocessors * busy;
  // Caches give what many blocks read, about this much faster than memory.
  const double traffic = 2.5 * spec.bandwidth / spec.multiprocessors;
  const double operations = work.piece_operations * at_once / rate;
  const double piece =
      std::max({operations, work.piece_bytes * at_once / traffic, work.piece_latency}) +
      operations * work.exposed_operations;
  return static_cast<double>(most_blocks) / at_once *
         (static_cast<double>(work.pieces) * piece + work.start_seconds);
}

std::string text_of(const DeviceSpec& spec, const Floor& floor) {
  if (floor.resident_blocks == 0) return fmt::format("{}: a block does not fit", spec.name);
  return fmt::format(
      "{}: {:.2f} us (memory {:.2f} us, arithmetic {:.2f} us; {} wave{} of {} x {} blocks, "
      "imbalance {:.2f})",
      spec.name, floor.seconds * 1e6, floor.memory_seconds * 1e6, floor.arithmetic_seconds * 1e6,
      floor.waves, floor.waves == 1 ? "" : "s", spec.multiprocessors, floor.resident_blocks,
      floor.imbalance);
}

}  // namespace anneal::cuda
