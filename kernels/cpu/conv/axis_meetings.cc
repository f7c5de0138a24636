#include "anneal/kernels/cpu/conv/axis_meetings.h"

#include <numeric>

namespace anneal::cpu {

AxisMeetings::AxisMeetings(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                           int64_t dilation) {
  // Output o meets tap t at position (o + pad - t * dilation) / stride, if that is an integer: taps
  // of a fixed distance, from one on that the rest of o + pad decides.
  const int64_t step = stride / std::gcd(stride, dilation);
  std::vector<int64_t> first_taps(static_cast<size_t>(stride), kernel);
  for (int64_t tap = step - 1; tap >= 0; --tap)
    first_taps[static_cast<size_t>(tap * dilation % stride)] = tap;
  begins.reserve(static_cast<size_t>(out) + 1);
  for (int64_t output = 0; output < out; ++output) {
    begins.push_back(all.size());
    const int64_t moved = output + pad;
    for (int64_t tap = first_taps[static_cast<size_t>((moved % stride + stride) % stride)];
         tap < kernel; tap += step) {
      const int64_t at = moved - tap * dilation;
      if (at < 0) break;
      if (at / stride < in) all.push_back({at / stride, tap});
    }
  }
  begins.push_back(all.size());
}

}  // namespace anneal::cpu
