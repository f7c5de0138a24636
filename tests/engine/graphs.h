// Small graphs for engine tests, in text form.
#pragma once
#include <string>
#include <string_view>

namespace anneal::testing {

// A body between a heading with these inputs and "return y".
inline std::string graph_of(std::string_view body, std::string_view inputs) {
  return "graph net(" + std::string(inputs) + ")\n" + std::string(body) + "  return y\n";
}

// A body in which each row of y follows from the same row of x, which is f32[...,6,5,5].
inline constexpr std::string_view kRowsApart = R"txt(
  const w: f32[8,6,3,3] = random(1)
  const b: f32[8,1,1] = random(2)
  c = Conv(x, w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  r = Pointwise(c, b) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  p = Pool(r) kernel=[3,3] strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  k = Concat(p, p) axis=1
  m = Reduce(k, i64{2,3}) kind=mean keepdims=false
  const v: f32[16,9] = random(3)
  s = MatMul(m, v)
  y = Softmax(s) axis=1
)txt";

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

// A block of GoogLeNet: four branches, three of which begin with a 1x1 convolution of one input.
inline constexpr std::string_view kInceptionBlock = R"txt(
graph inception_block(x: f32[1,24,9,7])
  const w_single: f32[16,24,1,1] = random(1)
  const b_single: f32[16,1,1] = random(2)
  const w_reduce3: f32[12,24,1,1] = random(3)
  const b_reduce3: f32[12,1,1] = random(4)
  const w_wide3: f32[20,12,3,3] = random(5)
  const b_wide3: f32[20,1,1] = random(6)
  const w_reduce5: f32[8,24,1,1] = random(7)
  const b_reduce5: f32[8,1,1] = random(8)
  const w_wide5: f32[9,8,5,5] = random(9)
  const b_wide5: f32[9,1,1] = random(10)
  const w_pooled: f32[8,24,1,1] = random(11)
  const b_pooled: f32[8,1,1] = random(12)
  c_single = Conv(x, w_single) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  single = Pointwise(c_single, b_single) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_reduce3 = Conv(x, w_reduce3) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  reduce3 = Pointwise(c_reduce3, b_reduce3) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_wide3 = Conv(reduce3, w_wide3) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  wide3 = Pointwise(c_wide3, b_wide3) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_reduce5 = Conv(x, w_reduce5) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  reduce5 = Pointwise(c_reduce5, b_reduce5) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_wide5 = Conv(reduce5, w_wide5) strides=[1,1] pads_begin=[2,2] pads_end=[2,2] dilations=[1,1]
  wide5 = Pointwise(c_wide5, b_wide5) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  m = Pool(x) kind=max kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  c_pooled = Conv(m, w_pooled) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  pooled = Pointwise(c_pooled, b_pooled) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  y = Concat(single, wide3, wide5, pooled) axis=1
  return y
)txt";

// A block of SqueezeNet: a 1x1 and a 3x3 convolution of one input.
inline constexpr std::string_view kFireBlock = R"txt(
graph fire_block(x: f32[1,24,9,7])
  const w_squeeze: f32[8,24,1,1] = random(1)
  const b_squeeze: f32[8,1,1] = random(2)
  const w_expand1: f32[16,8,1,1] = random(3)
  const b_expand1: f32[16,1,1] = random(4)
  const w_expand3: f32[16,8,3,3] = random(5)
  const b_expand3: f32[16,1,1] = random(6)
  c_squeeze = Conv(x, w_squeeze) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  squeeze = Pointwise(c_squeeze, b_squeeze) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_expand1 = Conv(squeeze, w_expand1) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]
  expand1 = Pointwise(c_expand1, b_expand1) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  c_expand3 = Conv(squeeze, w_expand3) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  expand3 = Pointwise(c_expand3, b_expand3) program="(f32,f32)->(f32) max(add($0,$1),0f32)"
  y = Concat(expand1, expand3) axis=1
  return y
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

// What detectors end with: a mask, its coordinates, and what lies there.
inline constexpr std::string_view kMasked = R"txt(
size N in 1..64 opt 4
graph masked(x: f32[N,5], k: i64[1], start: i64[1])
  mask = Pointwise(x) program="(f32)->(bool) lt(0f32,$0)"
  found = NonZero(mask)
  tuples = Transpose(found) permutation=[1,0]
  values = GatherND(x, tuples)
  dims = ShapeOf(values) start=0 end=1
  count = Pointwise(dims) program="(i64)->(f32) f32($0)"
  best, where = TopK(values, k) axis=0 largest=true sorted=true
  rest = Slice(values, start, i64{1000}, i64{0}, i64{2})
  doubled = Pointwise(rest) program="(f32)->(f32) mul($0,2f32)"
  sum = Reduce(values, i64{0}) kind=sum keepdims=false
  shape = Concat(dims, i64{1}) axis=0
  column = Reshape(values, shape)
  joined = Concat(column, column) axis=1
  return values, count, best, doubled, sum, joined
)txt";

inline constexpr std::string_view kDetections = R"txt(
graph detections(boxes: f32[1,40,4], scores: f32[1,2,40], most: i64[], overlap: f32[])
  kept = NonMaxSuppression(boxes, scores, most, overlap)
  index = Slice(kept, i64{2}, i64{3}, i64{1}, i64{1})
  flat = Reshape(index, i64{-1})
  of_kept = Gather(boxes, flat) axis=1
  scaled = Pointwise(of_kept) program="(f32)->(f32) mul($0,100f32)"
  rows = Pointwise(kept) program="(i64)->(f32) f32($0)"
  return rows, scaled
)txt";

inline constexpr std::string_view kDistinct = R"txt(
size N in 0..64 opt 4
graph distinct(x: f32[N])
  rounded = Pointwise(x) program="(f32)->(f32) floor(mul($0,2f32))"
  y, first, which, counts = Unique(rounded)
  often = Pointwise(counts) program="(i64)->(f32) f32($0)"
  weighted = Pointwise(y, often) program="(f32,f32)->(f32) mul($0,$1)"
  back = Gather(y, which) axis=0
  return y, often, weighted, back
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
