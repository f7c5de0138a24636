#include "anneal/kernels/cpu/conv/axis_meetings.h"

namespace anneal::cpu {

AxisMeetings::AxisMeetings(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                           int64_t dilation) {
  for (int64_t output = 0; output < out; ++output) {
    begins.push_back(all.size());
    for (int64_t tap = 0; tap < kernel; ++tap) {
      const int64_t at = output + pad - tap * dilation;
      if (at >= 0 && at % stride == 0 && at / stride < in) all.push_back({at / stride, tap});
    }
  }
  begins.push_back(all.size());
}

}  // namespace anneal::cpu
