// DepthwiseInt8::run, and padding for stage. Included inside a namespace that is compiled for one
// instruction set, by files that define there a struct Dot: using Vector, Sum; kLanes; kPixels
// (sums side by side);
//   load(p), dot(sum, x, weight), repeat(lane), load_sum(p), store_sum(p, sum);
//   kFinishes: whether finish_tile<Dot>() (gemm/register_epilogue-inl.h) can follow.

// Columns that are padding.
template <class Dot>
void stage_padding(const DepthwiseStage& stage) {
  const typename Dot::Sum padding = Dot::repeat(stage.padded_lane);
  for (int64_t v = 0; v < stage.vectors; ++v) {
    auto* const to = reinterpret_cast<int32_t*>(stage.to + v * stage.vector_stride);
    for (int64_t i = 0; i < stage.before; ++i) Dot::store_sum(to + i * Dot::kLanes, padding);
    const int64_t inside_end = stage.before + stage.columns;
    for (int64_t i = inside_end; i < inside_end + stage.after; ++i)
      Dot::store_sum(to + i * Dot::kLanes, padding);
  }
}

// kColumns, kStride: the kernel's; 0: any. Columns of input are loaded once where both are known.
template <class Dot, int kColumns, int kStride, int kPixels>
HWY_INLINE void dot_pixels(const DepthwiseDots& run, int64_t first) {
  using Vector = typename Dot::Vector;
  constexpr int64_t kBytes = Dot::kLanes * 4;
  const std::byte* x = run.x + first * run.stride * kBytes;
  typename Dot::Sum sums[kPixels][1];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) sums[p][0] = Dot::load_sum(run.initial);
  const std::byte* from = run.weights;
  for (int64_t group = 0; group < run.groups; ++group, x += run.group_stride) {
    if constexpr (kColumns == 0) {
      for (int64_t k = 0; k < run.kernel_columns; ++k, from += kBytes) {
        const Vector weight = Dot::load(from);
        const std::byte* column = x + k * run.dilation * kBytes;
#pragma GCC unroll 8
        for (int p = 0; p < kPixels; ++p)
          sums[p][0] = Dot::dot(sums[p][0], Dot::load(column + p * run.stride * kBytes), weight);
      }
    } else {
      Vector weights[kColumns];
#pragma GCC unroll 8
      for (int k = 0; k < kColumns; ++k) weights[k] = Dot::load(from + k * kBytes);
      from += kColumns * kBytes;
#pragma GCC unroll 32
      for (int c = 0; c < (kPixels - 1) * kStride + kColumns; ++c) {
        const Vector column = Dot::load(x + c * kBytes);
#pragma GCC unroll 8
        for (int k = c % kStride; k < kColumns; k += kStride)
          if (const int p = (c - k) / kStride; c >= k && p < kPixels)
            sums[p][0] = Dot::dot(sums[p][0], column, weights[k]);
      }
    }
  }
  if constexpr (Dot::kFinishes)
    if (run.finish != nullptr)
      return finish_tile<Dot>(*run.finish, run.finish_row + first, run.finish_column, sums);
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
    Dot::store_sum(run.out + (first + p) * run.out_step, sums[p][0]);
}

template <class Dot, int kColumns, int kStride>
void dot_run(const DepthwiseDots& run) {
  const auto pixels_from = [&]<int kPixels>(int64_t i) {
    dot_pixels<Dot, kColumns, kStride, kPixels>(run, i);
  };
  int64_t i = 0;
  for (; i + Dot::kPixels <= run.pixels; i += Dot::kPixels)
    pixels_from.template operator()<Dot::kPixels>(i);
  // The last few may be computed twice.
  if (run.pixels >= 4) {
    for (; i < run.pixels; i += 4)
      pixels_from.template operator()<4>(i + 4 <= run.pixels ? i : run.pixels - 4);
  }
  for (; i < run.pixels; ++i) pixels_from.template operator()<1>(i);
}

template <class Dot, int kColumns>
void dot_columns(const DepthwiseDots& run) {
  run.stride == 1 ? dot_run<Dot, kColumns, 1>(run) : dot_run<Dot, kColumns, 2>(run);
}

template <class Dot>
void depthwise_dots(const DepthwiseDots& run) {
  const int64_t known = run.dilation == 1 && run.stride <= 2 ? run.kernel_columns : 0;
  switch (known) {
    case 3:
      return dot_columns<Dot, 3>(run);
    case 5:
      return dot_columns<Dot, 5>(run);
    case 7:
      return dot_columns<Dot, 7>(run);
    default:
      return dot_run<Dot, 0, 0>(run);
  }
}
