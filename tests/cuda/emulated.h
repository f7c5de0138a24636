// Functions compiled for the host and run through the emulated driver's table.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "anneal/kernels/cuda/runtime/emulated_gpu.h"
#include "anneal/tests/cuda/driver_target.h"
#include "anneal/tests/cuda/environment.h"

namespace anneal::cuda {

inline const Driver& emulated_driver() { return emulated_gpu().driver; }
inline std::string emulated_fault() { return emulated_gpu().fault(); }
inline std::vector<FunctionCounts> emulated_counts(CUstream stream) {
  return emulated_gpu().take_counts(stream);
}
inline size_t emulated_live_allocations() { return emulated_gpu().live_allocations(); }
inline uint64_t emulated_bus_bytes() { return emulated_gpu().bus_bytes(); }
inline const Compiler& host_compiler(bool counts = false) {
  return counts ? emulated_gpu().counting_compiler : emulated_gpu().compiler;
}

// Of the threads of the emulated device.
struct OrderSetting {
  explicit OrderSetting(const std::string& order) : setting("ANNEAL_EMULATED_ORDER", order) {}
  const Setting setting;
};

class EmulatedTarget : private OrderSetting, public DriverTarget {
 public:
  explicit EmulatedTarget(const std::string& order = "forward")
      : OrderSetting(order), DriverTarget(emulated_driver(), host_compiler()) {}

  // A function of this text; `counts`: with the counters of accesses.
  CUfunction function(const std::string& text, std::vector<std::string_view> headers = {},
                      bool counts = false) {
    return function_by(host_compiler(counts), text, std::move(headers));
  }

  static void check(CUresult result) { ASSERT_EQ(result, CUDA_SUCCESS) << emulated_fault(); }
};

}  // namespace anneal::cuda
