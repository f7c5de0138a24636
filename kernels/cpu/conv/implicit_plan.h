// How "cpu.conv.implicit_gemm" cuts its work, and where it reads the input.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// One spatial axis of a convolution.
struct WindowAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  // The inputs within reach of `outputs` neighbouring outputs, including those between taps.
  int64_t reach(int64_t outputs) const {
    return (outputs - 1) * stride + (kernel - 1) * dilation + 1;
  }
  bool is_padded() const { return pad != 0 || reach(out) > in; }
  // One tap that meets each input once.
  bool is_pointwise() const { return kernel == 1 && stride == 1 && pad == 0 && out == in; }
  // Of the window of output `out` the taps inside the input.
  IndexRange taps_inside(int64_t out) const;
  // Of `count` outputs from `first` on those whose tap `tap` is inside the input.
  IndexRange outputs_inside(int64_t tap, int64_t first, int64_t count) const;
  // The number of taps inside the input, of all windows of `count` outputs from `first` on.
  int64_t count_inside(int64_t first, int64_t count) const;
};

// What does not depend on the sizes of the input.
struct ImplicitWeights {
  static constexpr int64_t kMostBlockLanes = 768;  // multiplied at a time

  GemmKernels kernels;
  PackLayout layout = {};
  int64_t channels = 0;
  bool joins_row = false;  // taps are rows of the window
  int64_t pieces = 1;      // of k that make a tap
};

// The part that is multiplied at a time: some lanes of some taps of a plane of the window.
struct ConvChunk {
  int64_t plane, tap, taps, lane, lanes;  // tap: of the plane
};

// A piece of work: outputs of one plane, and some of their channels.
struct ConvPiece {
  int64_t image, plane, row, rows, first, width, column, columns;
  IndexRange planes;  // of the window, that are multiplied
};

// The number of pieces along the rows of a plane of outputs, along a row, and along its channels.
struct ConvGrid {
  int64_t down = 1, across = 1, columns = 1;
  int64_t pieces() const { return down * across * columns; }
};

struct ImplicitPlan {
  static constexpr int64_t kBlockColumns = 64;  // whose sums are in the first-level cache

  ImplicitPlan() = default;
  // weights: outlives the plan.
  ImplicitPlan(const ImplicitWeights& weights, const ChannelsLast& x, const Window& window,
               int threads);

  const ImplicitWeights* weights = nullptr;
  ChannelsLast x;
  WindowAxis z_axis, y_axis, x_axis;
  int64_t source_plane = 0, source_row = 0, source_pixel = 0;  // bytes from input to input
  // Taps outside the input are not multiplied. Else they read padding from a copy.
  bool clips = false;
  bool is_copied = false;
  // As source_..., of what is read, the input or a copy; planes one dilation apart.
  int64_t plane = 0, row = 0, pixel = 0;
  // Bytes from the first input of a window, for the taps of a plane; none if `clips`.
  std::vector<int64_t> taps;
  int64_t taps_of_plane = 1, lanes_of_tap = 1;
  std::vector<ConvChunk> chunks;  // the same number of each plane
  ConvGrid grid;
  int64_t block_rows = 1;  // of a piece

  int64_t output_planes() const { return x.images * z_axis.out; }
  int64_t pieces() const { return output_planes() * grid.pieces(); }
  ConvPiece piece(int64_t item) const { return piece_of(grid, item); }
  int64_t most_rows() const { return ceil_div(y_axis.out, grid.down); }  // of a piece
  int64_t most_width() const { return ceil_div(x_axis.out, grid.across); }
  int64_t most_copied_bytes() const { return copied_bytes(most_rows(), most_width()); }

  // What the windows of a piece read; beyond the input lies padding, which `clips` leaves out.
  int64_t first_plane(const ConvPiece& piece) const {
    return piece.plane * z_axis.stride - z_axis.pad + piece.planes.begin * z_axis.dilation;
  }
  IndexRange rows_read(const ConvPiece& piece) const { return read(y_axis, piece.row, piece.rows); }
  IndexRange columns_read(const ConvPiece& piece) const {
    return read(x_axis, piece.first, piece.width);
  }

 private:
  void place_input(const Window& window);
  bool gains_by_clipping() const;
  bool copies_planes() const;
  void place_taps();
  void cut(int threads);
  int64_t rows_of_block(int64_t across) const;
  ConvGrid few_pieces() const;
  ConvGrid share_equally(const ConvGrid& least, int threads) const;
  int64_t largest_share(const ConvGrid& grid, int threads) const;
  int64_t work(const ConvPiece& piece) const;
  ConvPiece piece_of(const ConvGrid& grid, int64_t item) const;

  bool skips_planes() const { return weights->kernels.kind != GemmKind::kU8S8; }
  IndexRange read(const WindowAxis& axis, int64_t first, int64_t outputs) const {
    const int64_t begin = first * axis.stride - axis.pad, end = begin + axis.reach(outputs);
    if (!clips) return {begin, end};
    const int64_t inside = std::clamp<int64_t>(begin, 0, axis.in);
    return {inside, std::clamp(end, inside, axis.in)};
  }
  // The most inputs that `outputs` outputs read.
  int64_t most_read(const WindowAxis& axis, int64_t outputs) const {
    return clips ? std::min(axis.reach(outputs), axis.in) : axis.reach(outputs);
  }
  // The bytes of a copied row, followed by bytes that the last lane may reach.
  int64_t row_bytes(int64_t width) const;
  int64_t copied_bytes(int64_t rows, int64_t width) const {
    return is_copied ? z_axis.kernel * most_read(y_axis, rows) * row_bytes(width) : 0;
  }
};

}  // namespace anneal::cpu
