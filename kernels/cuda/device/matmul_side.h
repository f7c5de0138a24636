// The sides of a matrix product.
#pragma once

namespace matmul {

// Lines tells where line i begins, offset(i), and its zero point, zero(i); kHasZero: if it has one.
template <class T, class Acc, class I, class Lines, int lanes, bool along_depth>
struct Side {
  using Element = T;
  using Index = I;
  enum : int { kLanes = lanes, kValid = lanes };
  enum : bool { kAlongDepth = along_depth };
  enum : bool { kHasZero = Lines::kHasZero, kOutsideIsZero = false };
  struct Line {
    I offset;
    Acc zero;
  };
  struct Deep {
    I offset;
    bool is_in;
  };

  In<T> data;
  Lines lines;
  I count, depth, depth_step;
  bool aligned;

  __device__ Line line(I i) const {
    const I at = readable_line(i, count, along_depth ? 1 : lanes);
    return {lines.offset(at), lines.zero(at)};
  }
  __device__ Deep deep(I d) const { return {d * depth_step, d < depth}; }
  __device__ bool is_in(const Line&, const Deep& deep) const { return deep.is_in; }
  __device__ I offset(const Line& line, const Deep& deep) const {
    return line.offset + deep.offset;
  }
  __device__ Acc zero_of(const Line& line) const { return line.zero; }
};

}  // namespace matmul
