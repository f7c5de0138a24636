// A network with a layer that no GPU kernel takes: it pools along four axes.
#pragma once
#include <string_view>

namespace anneal::testing {

inline constexpr std::string_view kCpuLayerNet = R"txt(
graph four_axes(x: f32[1,2,3,4,3,4])
  p = Pool(x) kind=max kernel=[2,2,2,2] strides=[1,1,1,1] pads_begin=[0,0,0,0] pads_end=[0,0,0,0] dilations=[1,1,1,1]
  n = Pointwise(x) program="(f32)->(f32) neg($0)"
  return p, n
)txt";

}  // namespace anneal::testing
