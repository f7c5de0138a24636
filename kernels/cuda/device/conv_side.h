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
    if constexpr (!Shape::kTapsFirst) {
      c = depth / taps, tap = depth % taps;
    } else if constexpr (Shape::kChannelBlock == 0) {  // channels are neighbours
      c = depth % s.channels, tap = depth / s.channels;
    } else {  // some positions, for all elements of the kernel, then the next
      c = depth % Shape::kChannelBlock, tap = depth / Shape::kChannelBlock % taps;
      c += depth / Shape::kChannelBlock / taps * Shape::kChannelBlock;
    }
    x = tap % s.kernel_x;
    y = tap / s.kernel_x % s.kernel_y;
    z = tap / s.kernel_x / s.kernel_y;
  }
};

// Where in the depth an element is, where the channels of a kernel element are neighbours. Sizes of
// the kernel and the channels are numbers in the text; channels count the places between them and
// the next pixel's that a read covers. Beyond the depth z is the last, so that a bit stands for it.
template <class Shape>
struct NearTap {
  using I = typename Shape::Index;
  u32 c, z, y, x;
  __device__ NearTap(const Shape& s, I depth) {
    const u32 tap = u32(depth) / u32(s.channels);
    c = u32(depth) - tap * u32(s.channels);
    const u32 row = tap / u32(s.kernel_x);
    x = tap - row * u32(s.kernel_x);
    const u32 layer = row / u32(s.kernel_y), last = u32(s.kernel_z) - 1;
    y = row - layer * u32(s.kernel_y);
    z = layer < last ? layer : last;
  }
};

// Where the window of an output pixel begins, in padding perhaps.
template <class Shape>
struct Corner {
  using I = typename Shape::Index;
  I n, z, y, x;
  __device__ Corner(const Shape& s, I i) {
    const auto at = s.pixel(readable_line(i, I(s.rows)));
    n = I(at.n);
    z = I(at.z) * s.stride_z - s.pad_z;
    y = I(at.y) * s.stride_y - s.pad_y;
    x = I(at.x) * s.stride_x - s.pad_x;
  }
  // From the first element of the input's first channel.
  __device__ I offset(const Shape& s) const {
    return n * s.x_n + z * s.x_z + y * s.x_y + x * s.x_x;
  }
};

template <class T, class Acc, class Shape, int lanes>
struct Input {
  using Element = T;
  using Index = typename Shape::Index;
  using I = Index;
  enum : int { kLanes = lanes, kValid = lanes };
  enum : bool { kAlongDepth = Shape::kTapsFirst };
  enum : bool { kHasZero = Shape::kInputHasZero };
  enum : bool { kOutsideIsZero = kHasZero && Shape::kPadded };
  struct Line {  // of the window's first element
    I offset, z, y, x;
  };
  struct Deep {
    I offset, z, y, x;
    bool is_in;
  };

  In<T> data;
  const Shape& s;
  Acc zero;
  I first;  // where the group's channels begin
  bool aligned;

  __device__ Line line(I i) const {
    const Corner<Shape> corner(s, i);
    return {first + corner.offset(s), corner.z, corner.y, corner.x};
  }
  __device__ Deep deep(I d) const {
    const bool is_in = d < s.depth;
    const Tap<Shape> tap(s, is_in ? d : 0);
    const I z = tap.z * s.dilation_z, y = tap.y * s.dilation_y, x = tap.x * s.dilation_x;
    return {tap.c * s.x_c + z * s.x_z + y * s.x_y + x * s.x_x, z, y, x, is_in};
  }
  __device__ bool is_in(const Line& line, const Deep& deep) const {
    if constexpr (!Shape::kPadded) return deep.is_in;  // every window lies inside
    const I z = line.z + deep.z, y = line.y + deep.y, x = line.x + deep.x;
    return deep.is_in && 0 <= z && z < s.in_z && 0 <= y && y < s.in_y && 0 <= x && x < s.in_x;
  }
  __device__ I offset(const Line& line, const Deep& deep) const {
    return line.offset + deep.offset;
  }
  __device__ Acc zero_of(const Line&) const { return zero; }
};

// As above where the channels of a kernel element are neighbours and the kernel is small: a bit per
// z, y and x of the kernel shows where the window of a line is outside, so that a copy computes no
// coordinates.
template <class T, class Acc, class Shape, int lanes, int valid>
struct NearInput {
  using Element = T;
  using Index = typename Shape::Index;
  using I = Index;
  enum : int { kLanes = lanes, kValid = valid };
  enum : bool { kAlongDepth = true };
  enum : bool { kHasZero = Shape::kInputHasZero };
  enum : bool { kOutsideIsZero = kHasZero && Shape::kPadded };
  enum : u32 { kBeyond = u32(1) << 31 };  // the depth
  struct Line {
    I offset;  // of the window's first element
    u32 outside;
  };
  struct Deep {
    I offset;
    u32 bits;
  };

  In<T> data;
  const Shape& s;
  Acc zero;
  I first;  // where the group's channels begin
  bool aligned;

  __device__ Line line(I i) const {
    const Corner<Shape> corner(s, i);
    u32 outside = kBeyond;
    if constexpr (Shape::kPadded) {
      UNROLL
      for (int k = 0; k < Shape::kernel_x; ++k)
        outside |= is_outside(corner.x + k * s.dilation_x, s.in_x) << k;
      UNROLL
      for (int k = 0; k < Shape::kernel_y; ++k)
        outside |= is_outside(corner.y + k * s.dilation_y, s.in_y) << (k + Shape::kernel_x);
      UNROLL
      for (int k = 0; k < Shape::kernel_z; ++k)
        outside |= is_outside(corner.z + k * s.dilation_z, s.in_z)
                   << (k + Shape::kernel_x + Shape::kernel_y);
    }
    return {first + corner.offset(s), outside};
  }
  __device__ Deep deep(I d) const {
    const NearTap<Shape> tap(s, d);
    u32 bits = 0;
    if constexpr (Shape::kPadded)
      bits = u32(1) << tap.x | u32(1) << (tap.y + Shape::kernel_x) |
             u32(1) << (tap.z + Shape::kernel_x + Shape::kernel_y);
    const I offset =
        computed(I(tap.c) + I(tap.z) * (s.dilation_z * s.x_z) + I(tap.y) * (s.dilation_y * s.x_y) +
                 I(tap.x) * (s.dilation_x * s.x_x));
    return {offset, d < s.depth ? bits : kBeyond};
  }
  __device__ bool is_in(const Line& line, const Deep& deep) const {
    return (line.outside & deep.bits) == 0;
  }
  __device__ I offset(const Line& line, const Deep& deep) const {
    return line.offset + deep.offset;
  }
  __device__ Acc zero_of(const Line&) const { return zero; }

 private:
  __device__ static u32 is_outside(I at, I size) { return at < 0 || at >= size ? 1 : 0; }
};

// Zeros: Acc of(Index k), the zero point of a channel of the group; kHasZero: if there is one.
template <class T, class Acc, class Shape, class Zeros, int lanes, int valid>
struct Weights {
  using Element = T;
  using Index = typename Shape::Index;
  using I = Index;
  enum : int { kLanes = lanes, kValid = valid };
  enum : bool { kAlongDepth = true };
  enum : bool { kHasZero = Zeros::kHasZero, kOutsideIsZero = false };
  struct Line {
    I offset;
    Acc zero;
  };
  struct Deep {
    I offset;
    bool is_in;
  };

  In<T> data;
  const Shape& s;
  Zeros zeros;
  I first;  // line of the group
  bool aligned;

  __device__ Line line(I i) const {
    const I k = readable_line(i, I(s.columns));
    return {(first + k) * s.w_k, zeros.of(k)};
  }
  __device__ Deep deep(I d) const {
    if constexpr (Shape::kLinearWeights) {  // adjacent in the order of the depth
      return {d, d < s.depth};
    } else {
      const bool is_in = d < s.depth;
      const Tap<Shape> tap(s, is_in ? d : 0);
      return {tap.c * s.w_c + tap.z * s.w_z + tap.y * s.w_y + tap.x * s.w_x, is_in};
    }
  }
  __device__ bool is_in(const Line&, const Deep& deep) const { return deep.is_in; }
  __device__ I offset(const Line& line, const Deep& deep) const {
    return line.offset + deep.offset;
  }
  __device__ Acc zero_of(const Line& line) const { return line.zero; }
};

}  // namespace conv
