// The sides of a matrix product on CUDA cores.
#pragma once

namespace matmul {

// Lines tells where line i begins, offset(i), and its zero point, zero(i). Lines beyond `count`
// are read as the last.
template <class T, class Acc, class I, class Lines, int lanes, bool along_depth>
struct Side {
  using Element = T;
  using Index = I;
  static constexpr int kLanes = lanes;
  static constexpr bool kAlongDepth = along_depth;
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
    const I at = i < count ? i : count - lanes_across();
    return {lines.offset(at), lines.zero(at)};
  }
  __device__ Deep deep(I d) const { return {d * depth_step, d < depth}; }
  __device__ Vec<T, lanes> get(const Line& line, const Deep& deep) const {
    if (deep.is_in) return load_lanes<lanes>(data, line.offset + deep.offset, aligned);
    Vec<T, lanes> none;
    UNROLL
    for (int i = 0; i < lanes; ++i) none[i] = Narrow<T>::of(line.zero);
    return none;
  }
  __device__ Acc zero_of(const Line& line) const { return line.zero; }

 private:
  __device__ static constexpr I lanes_across() { return along_depth ? 1 : lanes; }
};

}  // namespace matmul
