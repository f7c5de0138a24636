#include "anneal/kernels/cuda/runtime/card_spec.h"

#include <algorithm>
#include <cmath>

namespace anneal::cuda {
namespace {

// The newest card that is no newer.
const DeviceSpec* nearest(int architecture) {
  const DeviceSpec* found = nullptr;
  for (const DeviceSpec& spec : device_specs())
    if (spec.architecture <= architecture) found = &spec;
  return found;
}

// CUDA C++ Programming Guide 13.0, "Throughput of Native Arithmetic Instructions": f32 FMA of a
// multiprocessor per clock. sm_100 and sm_120 have as many as sm_90.
double f32_lanes(int architecture) { return architecture == 80 ? 64 : 128; }

// Memory of a card transfers twice per clock. If the driver reports no clock, as for cards that
// share the host's memory, a multiprocessor gets the bandwidth of one of the known card.
double bandwidth_of(const CardFigures& card, const DeviceSpec& known) {
  const double bytes = 2e3 * card.memory_clock_khz * (card.memory_bus_bits / 8.0);
  return bytes > 0 ? bytes : known.bandwidth * card.multiprocessors / known.multiprocessors;
}

double f32_flops_of(const CardFigures& card, const DeviceSpec& known) {
  const double flops = 2e3 * card.clock_khz * f32_lanes(card.architecture) * card.multiprocessors;
  return flops > 0 ? flops : known.f32_flops * card.multiprocessors / known.multiprocessors;
}

bool is_near(double a, double b) {
  constexpr double kClocks = 0.05;  // as much as boards of one name differ
  return std::abs(a - b) <= kClocks * b;
}

bool is_same(const DeviceSpec& a, const DeviceSpec& b) {
  return a.architecture == b.architecture && a.multiprocessors == b.multiprocessors &&
         a.threads_per_multiprocessor == b.threads_per_multiprocessor &&
         a.blocks_per_multiprocessor == b.blocks_per_multiprocessor &&
         a.registers_per_multiprocessor == b.registers_per_multiprocessor &&
         a.shared_bytes_per_multiprocessor == b.shared_bytes_per_multiprocessor &&
         a.shared_bytes_per_block == b.shared_bytes_per_block &&
         is_near(a.bandwidth, b.bandwidth) && is_near(a.f32_flops, b.f32_flops);
}

}  // namespace

CardFigures figures_of(const Context& context) {
  const auto get = [&](CUdevice_attribute attribute) { return context.attribute(attribute); };
  return {
      .architecture = 10 * get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                      get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      .multiprocessors = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      .threads_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .blocks_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
      .registers_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
      .shared_bytes_per_multiprocessor =
          get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
      .shared_bytes_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .l2_bytes = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
      .clock_khz = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      .memory_clock_khz = get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
      .memory_bus_bits = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
  };
}

std::optional<DeviceSpec> spec_of_card(const CardFigures& figures, std::string_view name) {
  const DeviceSpec* const known = nearest(figures.architecture);
  if (known == nullptr) return std::nullopt;
  CardFigures card = figures;
  card.multiprocessors = std::max(card.multiprocessors, 1);
  DeviceSpec spec = *known;
  spec.architecture = card.architecture;
  spec.name = name;
  spec.multiprocessors = card.multiprocessors;
  spec.threads_per_multiprocessor = card.threads_per_multiprocessor;
  spec.blocks_per_multiprocessor = card.blocks_per_multiprocessor;
  spec.registers_per_multiprocessor = card.registers_per_multiprocessor;
  spec.shared_bytes_per_multiprocessor = card.shared_bytes_per_multiprocessor;
  spec.shared_bytes_per_block = card.shared_bytes_per_block;
  spec.l2_bytes = card.l2_bytes;
  spec.bandwidth = bandwidth_of(card, *known);
  spec.f32_flops = f32_flops_of(card, *known);
  // Within an architecture, the ratio of tensor cores to other cores is the same.
  spec.f16_tensor_flops = spec.f32_flops * known->f16_tensor_flops / known->f32_flops;
  return is_same(spec, *known) ? *known : spec;
}

}  // namespace anneal::cuda
