// The elements of an input that the outputs of a transposed convolution meet along an axis.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace anneal::cpu {

// An element of x and the tap of the kernel that an output meets along an axis.
struct Meeting {
  int64_t position = 0, tap = 0;
};

// For each output of an axis its meetings, by ascending taps.
struct AxisMeetings {
  AxisMeetings() = default;
  AxisMeetings(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
               int64_t dilation);

  std::span<const Meeting> of(int64_t output) const {
    const auto at = static_cast<size_t>(output);
    return std::span(all).subspan(begins[at], begins[at + 1] - begins[at]);
  }

  std::vector<Meeting> all;
  std::vector<size_t> begins;  // one more than outputs
};

}  // namespace anneal::cpu
