// CustomKernels: the kernels of an operator from outside (graph/op/custom_operator.h). Backends
// have an entry for them that arranges the operands as they want them.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/graph/op/custom_operator.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

// A function for GPUs, in the language of kernels/cuda/device/prelude.h. Its parameters are all
// inputs and outputs, the workspace if it has one, then the values of a launch.
class CustomFunction {
 public:
  struct Launch {
    std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
    uint32_t shared_bytes = 0;
    std::vector<int64_t> values;  // parameters of type i64
  };
  struct Launches {
    std::vector<Launch> launches;  // one after the other
    size_t workspace_bytes = 0;
  };
  virtual ~CustomFunction() = default;
  virtual std::string text() const = 0;  // "$name" stands for the function's name
  virtual bool has_workspace() const = 0;
  // Views without data.
  virtual Launches launches(std::span<const TensorView> inputs,
                            std::span<const TensorView> outputs) const = 0;
};
using CustomFunctionResult = Result<std::unique_ptr<CustomFunction>>;

// All views that its kernels and functions see are dense and row-major.
class CustomKernels {
 public:
  virtual ~CustomKernels() = default;
  virtual KernelResult make_for_cpu(const Custom& op, const Request& request) const = 0;
  virtual CustomFunctionResult make_for_gpu(const Custom& op, const Request& request) const = 0;
};

}  // namespace anneal
