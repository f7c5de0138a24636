// Small graphs for engine tests, in text form.
#pragma once
#include <string_view>

namespace anneal::testing {

// A convolution net with a branch, a residual, a concat and shape changes; static.
inline constexpr std::string_view kConvNet = R"txt(
graph conv_net(x: f32[1,3,9,7])
  const w: f32[8,3,3,3] = random(1)
  const b: f32[8,1,1] = random(2)
  const w2: f32[8,8,1,1] = random(3)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  d = Conv(r, w2) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  s = Pointwise(d, r) program="(f32,f32)->(f32) add($0,$1)"
  k = Concat(s, r) axis=1
  h = Slice(k, i64{0,0}, i64{7,1}, i64{1,2}, i64{1,1})
  f = Reshape(h, i64{1,-1,7})
  t = Transpose(f) permutation=[0,2,1]
  p = Reduce(t, i64{2}) kind=mean keepdims=false
  q = Softmax(p) axis=1
  return q as y, s as features
)txt";

// The batch is a symbol; the output's batch is twice it.
inline constexpr std::string_view kDynamicNet = R"txt(
size N in 1..16 opt 4
graph dynamic_net(x: f32[N,6], z: f32[N,6])
  const m: f32[6,5] = random(1)
  const shape: i64[2] = {-1, 3}
  a = Pointwise(x, z) program="(f32,f32)->(f32) add($0,mul($1,2f32))"
  c = Concat(a, z) axis=0
  g = MatMul(c, m)
  s = Reshape(a, shape)
  return g as y, s as rows
)txt";

// The size of `y` depends on the values of `n`.
inline constexpr std::string_view kLateNet = R"txt(
size K in 0..64 opt 8
graph late_net(x: f32[3], n: i64[2])
  e = Expand(x, n)
  r = Pointwise(e) program="(f32)->(f32) add($0,1f32)"
  s = Reduce(r, i64{0}) kind=sum keepdims=false
  return r as y, s as sums
)txt";

// A branch in each step of a scan; nothing in it decides how often something runs.
inline constexpr std::string_view kBodiesNet = R"txt(
size T in 1..8 opt 4
graph bodies_net(s: f32[3], x: f32[T,3])
  body step(s1: f32[3], x1: f32[3])
    body then(a: f32[3], b: f32[3])
      d = Pointwise(a, b) program="(f32,f32)->(f32) sub($0,$1)"
      return d
    end
    body else(a: f32[3], b: f32[3])
      return b
    end
    most = Reduce(x1, i64{0}) kind=max keepdims=false
    c = Pointwise(most) program="(f32)->(bool) lt($0,1f32)"
    v = If(c, s1, x1)
    return v, x1 as seen
  end
  last, seen = Scan(s, x) body=0 carried=1 axes=[0] reverse=[0] output_axes=[0] output_reverse=[1]
  y = Pointwise(last) program="(f32)->(f32) mul($0,3f32)"
  return y, seen
)txt";

}  // namespace anneal::testing
