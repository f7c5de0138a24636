// Integers that an 8-bit convolution adds to the sums of its channels, as quantized models store
// their bias: sums start at them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// As integers of 32 bits wrap.
inline int32_t wrapping_sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

class StartOffsets {
 public:
  // Takes the addition out of the layer's only epilogue, if its integers are constants, one or one
  // for each channel.
  explicit StartOffsets(const Request& request);

  // The layer without the addition. Refers to this and to the request that it was made from.
  Request rest(const Request& request) const;
  // One for each of the channels; empty: there are none.
  std::vector<int32_t> of_channels(int64_t channels) const;

 private:
  std::optional<Program> rest_;
  const Tensor* integers_ = nullptr;
};

}  // namespace anneal::cpu
