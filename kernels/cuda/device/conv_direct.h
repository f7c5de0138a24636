// The sides of a convolution as a product (implicit GEMM): lines of the input side are output
// pixels, lines of the weights output channels, the depth is channels times elements of the kernel.
// Shape names the numbers (conv.cc writes it); fewer than three spatial axes are z, y, x with
// leading ones of size 1.
#pragma once

namespace conv {

// Where in the depth an element is: channel and kernel element.
template <class Shape>
struct Tap {
  using I = typename Shape::Index;
  I c, z, y, x;
  __device__ Tap(const Shape& s, I depth) {
    const I taps = I(s.kernel_z) * s.kernel_y * s.kernel_x;
    I tap;
    if constexpr (Shape::kTapsFirst) {  // channels are neighbours
      c = depth % s.channels, tap = depth / s.channels;
    } else {
      c = depth / taps, tap = depth % taps;
    }
    x = tap % s.kernel_x;
    y = tap / s.kernel_x % s.kernel_y;
    z = tap / s.kernel_x / s.kernel_y;
  }
};

template <class T, class Acc, class Shape, int lanes>
struct Input {
  using Element = T;
  using Index = typename Shape::Index;
  using I = Index;
  static constexpr int kLanes = lanes;
  static constexpr bool kAlongDepth = Shape::kTapsFirst;
  struct Line {  // of the window's first element
    I offset, z, y, x;
  };
  struct Deep {
    I offset, z, y, x;
    bool is_in;
  };

  In<T> data;  // of the group
  const Shape& s;
  Acc zero;
  bool aligned;

  __device__ Line line(I i) const {
    const auto at = s.pixel(i < s.rows ? i : s.rows - 1);
    const I z = I(at.z) * s.stride_z - s.pad_z, y = I(at.y) * s.stride_y - s.pad_y,
            x = I(at.x) * s.stride_x - s.pad_x;
    return {I(at.n) * s.x_n + z * s.x_z + y * s.x_y + x * s.x_x, z, y, x};
  }
  __device__ Deep deep(I d) const {
    const Tap<Shape> tap(s, d);
    const I z = tap.z * s.dilation_z, y = tap.y * s.dilation_y, x = tap.x * s.dilation_x;
    return {tap.c * s.x_c + z * s.x_z + y * s.x_y + x * s.x_x, z, y, x, d < s.depth};
  }
  __device__ Vec<T, lanes> get(const Line& line, const Deep& deep) const {
    bool is_in = deep.is_in;
    if constexpr (Shape::kPadded) {  // else every window lies inside
      is_in = is_in && 0 <= line.z + deep.z && line.z + deep.z < s.in_z;
      is_in = is_in && 0 <= line.y + deep.y && line.y + deep.y < s.in_y;
      is_in = is_in && 0 <= line.x + deep.x && line.x + deep.x < s.in_x;
    }
    if (is_in) return load_lanes<lanes>(data, line.offset + deep.offset, aligned);
    Vec<T, lanes> none;
    UNROLL
    for (int i = 0; i < lanes; ++i) none[i] = Narrow<T>::of(zero);
    return none;
  }
  __device__ Acc zero_of(const Line&) const { return zero; }
};

// Zeros: Acc of(Index k), the zero point of a channel of the group.
template <class T, class Acc, class Shape, class Zeros, int lanes>
struct Weights {
  using Element = T;
  using Index = typename Shape::Index;
  using I = Index;
  static constexpr int kLanes = lanes;
  static constexpr bool kAlongDepth = true;
  struct Line {
    I offset;
    Acc zero;
  };
  struct Deep {
    I offset;
    bool is_in;
  };

  In<T> data;  // of the group
  const Shape& s;
  Zeros zeros;
  bool aligned;

  __device__ Line line(I i) const {
    const I k = i < s.columns ? i : s.columns - 1;
    return {k * s.w_k, zeros.of(k)};
  }
  __device__ Deep deep(I d) const {
    if constexpr (Shape::kLinearWeights) {  // adjacent in the order of the depth
      return {d, d < s.depth};
    } else {
      const Tap<Shape> tap(s, d);
      return {tap.c * s.w_c + tap.z * s.w_z + tap.y * s.w_y + tap.x * s.w_x, d < s.depth};
    }
  }
  __device__ Vec<T, lanes> get(const Line& line, const Deep& deep) const {
    if (deep.is_in) return load_lanes<lanes>(data, line.offset + deep.offset, aligned);
    Vec<T, lanes> none;
    UNROLL
    for (int i = 0; i < lanes; ++i) none[i] = Narrow<T>::of(line.zero);
    return none;
  }
  __device__ Acc zero_of(const Line& line) const { return line.zero; }
};

}  // namespace conv
