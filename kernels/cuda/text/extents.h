// Sizes and strides of operands in the text of a function: literals where they are known when the
// kernel is made and not negative, else parameters v0, v1, ... whose values each binding reads off
// the views.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/runtime/device.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

class Extents {
 public:
  explicit Extents(const Request& request) : request_(request) {}  // which must outlive text-making

  // An expression of type i64.
  std::string input_dim(int input, int axis) { return dim(false, input, axis); }
  std::string input_stride(int input, int axis) { return stride(false, input, axis); }
  std::string output_dim(int output, int axis) { return dim(true, output, axis); }
  std::string dim(bool of_output, int operand, int axis) {
    return number({of_output, false, operand, axis});
  }
  std::string stride(bool of_output, int operand, int axis) {
    return number({of_output, true, operand, axis});
  }

  // The requested extents that are no literals: ", i64 v0, i64 v1"; and ", v0, v1".
  std::string parameters() const;
  std::string names() const;

  // Which numbers those are; kept by the kernel.
  struct Source {
    bool output, stride;
    int operand, axis;
    bool operator==(const Source&) const = default;
  };
  const std::vector<Source>& sources() const { return sources_; }

 private:
  std::string number(const Source& source);
  const Request& request_;
  std::vector<Source> sources_;
};

// The values of v0, v1, ... for these views, and as arguments of a launch.
std::vector<int64_t> values_of(std::span<const Extents::Source> sources,
                               std::span<const TensorView> inputs,
                               std::span<const TensorView> outputs);

}  // namespace anneal::cuda
