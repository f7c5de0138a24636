// The figures of a GPU of this machine, from its driver. GPUs of one architecture differ: an H200,
// an H20 and a seventh of an H100 are all sm_90.
#pragma once
#include <optional>

#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/runtime/context.h"

namespace anneal::cuda {

// As the driver's attributes count them.
struct CardFigures {
  int architecture;  // 90: sm_90
  int multiprocessors;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int registers_per_multiprocessor;
  int shared_bytes_per_multiprocessor, shared_bytes_per_block;
  int l2_bytes;
  int clock_khz, memory_clock_khz, memory_bus_bits;  // 0: not told
};
CardFigures figures_of(const Context& context);

// That of device_specs() if the card has its figures, so that choices made on it are those made for
// its architecture on any machine. Else one of its own, called `name`, with the rates of the
// nearest known architecture below. Nothing if all known ones are above.
std::optional<DeviceSpec> spec_of_card(const CardFigures& figures, std::string_view name);

}  // namespace anneal::cuda
