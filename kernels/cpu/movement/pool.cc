// Maximum and average pools along channels: "cpu.pool.nhwc".
#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/movement/pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "anneal/core/float16.h"
#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"
#include "anneal/kernels/cpu/conv/window.h"
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Maximum {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static V start() {
    return hn::Set(D(), std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                    : std::numeric_limits<T>::lowest());
  }
  static HWY_INLINE V add(V best, V value) {
    if constexpr (std::is_floating_point_v<T>) {
      return max_nan(D(), best, value);
    } else {
      return hn::Max(best, value);
    }
  }
};

struct Sum {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static V start() { return hn::Zero(D()); }
  static HWY_INLINE V add(V sum, V value) { return hn::Add(sum, value); }
};

// How elements are read as lanes of T.
template <class T>
struct AsIs {
  using Element = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* p) {
    return hn::LoadU(d, p);
  }
  static T one(T value) { return value; }
};
struct OfBf16 {
  using Element = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    return widened_bf16(d, p);
  }
  static float one(uint16_t bits) { return to_f32(BFloat16{bits}); }
};

template <class Reduction, class X, int kVectors, class T>
HWY_INLINE void reduce_channels(const PixelTaps& taps, int64_t channel, T* out) {
  const typename Reduction::D d;
  constexpr int64_t kLanes = HWY_LANES(T);
  typename Reduction::V folded[kVectors];
  for (int v = 0; v < kVectors; ++v) folded[v] = Reduction::start();
  for (int64_t row = 0; row < taps.rows; ++row) {
    const auto* from = reinterpret_cast < const typename X
    ::Element* > (taps.x) + taps.row_offsets[row] + channel;
    for (int64_t column = 0; column < taps.columns; ++column, from += taps.column_step)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        folded[v] = Reduction::add(folded[v], X::load(d, from + v * kLanes));
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(folded[v], d, out + channel + v * kLanes);
}

// Channels too few for a vector go through a copy of each tap.
template <class Reduction, class X, class T>
void reduce_few(const PixelTaps& taps, int64_t count, T* out) {
  const typename Reduction::D d;
  HWY_ALIGN T lanes[HWY_LANES(T)] = {};
  auto folded = Reduction::start();
  for (int64_t row = 0; row < taps.rows; ++row) {
    const auto* from = reinterpret_cast < const typename X
    ::Element* > (taps.x) + taps.row_offsets[row];
    for (int64_t column = 0; column < taps.columns; ++column, from += taps.column_step) {
      std::transform(from, from + count, lanes, X::one);
      folded = Reduction::add(folded, hn::Load(d, lanes));
    }
  }
  hn::Store(folded, d, lanes);
  std::copy(lanes, lanes + count, out);
}

template <class Reduction, class T, class X = AsIs<T>>
void reduce_pixel(const PixelTaps& taps, int64_t count, T* out) {
  constexpr int64_t kLanes = HWY_LANES(T);
  if (count < kLanes) return reduce_few < Reduction, X
  , T > (taps, count, out);
  int64_t channel = 0;
  for (; channel + 4 * kLanes <= count; channel += 4 * kLanes) reduce_channels < Reduction, X
  , 4, T > (taps, channel, out);
  for (; channel + kLanes <= count; channel += kLanes) reduce_channels < Reduction, X
  , 1, T > (taps, channel, out);
  if (channel < count) reduce_channels < Reduction, X
  , 1, T > (taps, count - kLanes, out);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// The largest bf16 by its bits as integers: the largest signed integer, or if all are negative the
// smallest. For vectors of 16 bits from `channel` on. False if there is a NaN with a sign, which
// would not be the largest.
template <int kVectors>
HWY_INLINE bool max_bf16(const PixelTaps& taps, int64_t channel, float* out) {
  const hn::ScalableTag<int16_t> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int64_t kLanes = HWY_LANES(int16_t);
  constexpr uint16_t kNegativeInfinity = 0xff80;
  hn::Vec<decltype(d)> most[kVectors], least[kVectors];
  hn::Vec<decltype(du)> without_sign[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    without_sign[v] = hn::Set(du, kNegativeInfinity);
    most[v] = least[v] = hn::BitCast(d, without_sign[v]);
  }
  for (int64_t row = 0; row < taps.rows; ++row) {
    const auto* from = reinterpret_cast<const int16_t*>(taps.x) + taps.row_offsets[row] + channel;
    for (int64_t column = 0; column < taps.columns; ++column, from += taps.column_step)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto bits = hn::LoadU(d, from + v * kLanes);
        most[v] = hn::Max(most[v], bits);
        least[v] = hn::Min(least[v], bits);
        without_sign[v] = hn::Max(without_sign[v], hn::BitCast(du, bits));
      }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    if (!hn::AllTrue(du, hn::Eq(without_sign[v], hn::Set(du, kNegativeInfinity)))) return false;
    const auto bits = hn::IfNegativeThenElse(most[v], least[v], most[v]);
    HWY_ALIGN uint16_t lanes[HWY_LANES(uint16_t)];
    hn::Store(hn::BitCast(du, bits), du, lanes);
    const hn::ScalableTag<float> df;
    float* const to = out + channel + v * kLanes;
    hn::StoreU(widened_bf16(df, lanes), df, to);
    hn::StoreU(widened_bf16(df, lanes + kLanes / 2), df, to + kLanes / 2);
  }
  return true;
}

bool max_pixel_bf16(const PixelTaps& taps, int64_t count, float* out) {
  constexpr int64_t kLanes = HWY_LANES(int16_t);
  if (count < kLanes) return false;
  int64_t channel = 0;
  for (; channel + 4 * kLanes <= count; channel += 4 * kLanes)
    if (!max_bf16<4>(taps, channel, out)) return false;
  for (; channel < count; channel += kLanes)
    if (!max_bf16<1>(taps, std::min(channel, count - kLanes), out)) return false;
  return true;
}
#else
bool max_pixel_bf16(const PixelTaps&, int64_t, float*) { return false; }
#endif

}  // namespace

void pool_pixel(const PixelTaps& taps, PoolKind kind, DataType dtype, int64_t count,
                std::byte* out) {
  auto* const sums = reinterpret_cast<float*>(out);
  if (kind == PoolKind::kAverage)
    return dtype == DataType::kBF16 ? reduce_pixel<Sum, float, OfBf16>(taps, count, sums)
                                    : reduce_pixel<Sum, float>(taps, count, sums);
  switch (dtype) {
    case DataType::kI8:
      return reduce_pixel<Maximum<int8_t>, int8_t>(taps, count, reinterpret_cast<int8_t*>(out));
    case DataType::kU8:
      return reduce_pixel<Maximum<uint8_t>, uint8_t>(taps, count, reinterpret_cast<uint8_t*>(out));
    case DataType::kBF16:
      if (max_pixel_bf16(taps, count, sums)) return;
      return reduce_pixel<Maximum<float>, float, OfBf16>(taps, count, sums);
    default:
      return reduce_pixel<Maximum<float>, float>(taps, count, sums);
  }
}

void divide(float* values, int64_t count, float divisor) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_LANES(float);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::Div(hn::LoadU(d, values + i), hn::Set(d, divisor)), d, values + i);
  for (; i < count; ++i) values[i] /= divisor;
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

struct PreparedPool final : PreparedKernel {
  PixelRuns runs;
  Window window;
  Spatial pad_end{};
  // Outputs of a row whose windows lie in the row of x, if these are pooled several at a time: as
  // one pixel with the channels of all, and of those between them that a stride skips.
  int64_t joined_begin = 0, joined_end = 0;
};

constexpr int64_t kJoinedElements = 2048;  // at most, of joined pixels; they stay in the cache
constexpr int64_t kFewChannels = 32;       // fewer are joined also where a stride skips others

class NhwcPool final : public Kernel {
 public:
  NhwcPool(const Pool& op, const Request& request, Epilogue epilogue)
      : op_(op),
        pixel_(ANNEAL_BY_ISA(isa_of(request.device), pool_pixel)),
        divide_(ANNEAL_BY_ISA(isa_of(request.device), divide)),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView& y = outputs[0];
    auto made = std::make_unique<PreparedPool>();
    PreparedPool& p = *made;
    const size_t element = result_bytes(inputs[0].dtype);
    p.runs =
        PixelRuns(inputs, outputs,
                  {.element = element, .per_run = kJoinedElements * element, .keeps_bf16 = true},
                  epilogue_, threads, p.workspace_bytes);
    if (p.runs.empty()) return made;
    p.window = Window(op_, op_.kernel, 0, y.dims);
    p.pad_end = spatial_of(op_.pads_end, 0, y.dims.rank() - 2, 0);
    join_pixels(p);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedPool&>(*args.prepared);
    if (p.runs.empty()) return;
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, run); });
  }

 private:
  // Floats are pooled in f32.
  static size_t result_bytes(DataType x) { return size_of(x) == 1 ? 1 : sizeof(float); }

  static void join_pixels(PreparedPool& p) {
    const ChannelsLast& x = p.runs.x();
    const int64_t channels = p.runs.channels(), stride = p.window.stride[2];
    const bool is_worth_it = channels < (stride == 1 ? kJoinedElements / 8 : kFewChannels);
    if (!is_worth_it || x.strides[2] != channels) return;
    const int64_t reach = (p.window.kernel[2] - 1) * p.window.dilation[2];
    const int64_t last = x.size[2] - 1 - reach + p.window.pad[2];  // where a window may begin
    p.joined_begin = ceil_div(p.window.pad[2], stride);
    p.joined_end = last < 0 ? 0 : last / stride + 1;
  }

  // Kernel elements at this output index that lie in x or, if padding counts, in the padding.
  int64_t inside(const PreparedPool& p, int axis, int64_t index) const {
    const int64_t before = op_.count_include_pad ? p.window.pad[axis] : 0;
    const int64_t after = op_.count_include_pad ? p.pad_end[axis] : 0;
    int64_t result = 0;
    for (int64_t k = 0; k < p.window.kernel[axis]; ++k) {
      const int64_t position =
          index * p.window.stride[axis] - p.window.pad[axis] + k * p.window.dilation[axis];
      result += position >= -before && position < p.runs.x().size[axis] + after ? 1 : 0;
    }
    return result;
  }

  void compute(const PreparedPool& p, const PixelRun& run) const {
    const ChannelsLast& x = p.runs.x();
    const int64_t channels = p.runs.channels();
    const int64_t rows_inside = inside(p, 0, run.row / p.window.out[1] % p.window.out[0]) *
                                inside(p, 1, run.row % p.window.out[1]);
    const auto pixel_bytes = channels * static_cast<int64_t>(result_bytes(x.element));
    PixelTaps taps;
    taps.enter_row(p.window, x, run.x, run.row);
    for (int64_t i = 0, count; i < run.count; i += count) {
      const int64_t column = run.first + i;
      taps.enter_column(p.window, x, column);
      std::byte* const out = run.out + i * pixel_bytes;
      count = joined_pixels(p, column, run.count - i);
      pool_pixels(p, taps, count, run.extra, out);
      if (op_.kind != PoolKind::kAverage) continue;
      const int64_t divisor = rows_inside * inside(p, 2, column);
      if (divisor > 0)
        divide_(reinterpret_cast<float*>(out), count * channels, static_cast<float>(divisor));
    }
  }

  // Up to `count` pixels from this column on that are pooled at a time.
  static int64_t joined_pixels(const PreparedPool& p, int64_t column, int64_t count) {
    if (column < p.joined_begin || column >= p.joined_end) return 1;
    const int64_t most = (kJoinedElements / p.runs.channels() - 1) / p.window.stride[2] + 1;
    return std::min({count, p.joined_end - column, most});
  }

  // taps: of the first one. memory: of kJoinedElements results.
  void pool_pixels(const PreparedPool& p, const PixelTaps& taps, int64_t count, std::byte* memory,
                   std::byte* out) const {
    const ChannelsLast& x = p.runs.x();
    const int64_t channels = p.runs.channels(), stride = p.window.stride[2];
    if (count == 1 || stride == 1) return pixel_(taps, op_.kind, x.element, count * channels, out);
    pixel_(taps, op_.kind, x.element, ((count - 1) * stride + 1) * channels, memory);
    const auto bytes = static_cast<size_t>(channels) * result_bytes(x.element);
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(out + static_cast<size_t>(i) * bytes,
                  memory + static_cast<size_t>(i * stride) * bytes, bytes);
  }

  Pool op_;
  void (*pixel_)(const PixelTaps&, PoolKind, DataType, int64_t, std::byte*);
  void (*divide_)(float*, int64_t, float);
  LoadBlock load_;
  Epilogue epilogue_;
};

KernelResult make_nhwc(const Pool& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype;
  const bool f32 = x == DataType::kF32 || is_half(x);
  const bool int8 = is_8bit(x);
  if (op.kind == PoolKind::kLp || op.with_indices) return refuse("only maxima and averages");
  if (!f32 && !(int8 && op.kind == PoolKind::kMax))
    return refuse("only f32, f16, bf16, and maxima of 8-bit elements");
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  int64_t rows = 1;
  for (int axis = 0; axis < rank - 3; ++axis) {
    if (op.kernel[axis] > PixelTaps::kMostRows) return refuse("a kernel of more than 64 rows");
    rows *= op.kernel[axis];
  }
  if (rows > PixelTaps::kMostRows) return refuse("a kernel of more than 64 rows");
  auto epilogue = Epilogue::make(request, int8 ? x : DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<NhwcPool>(op, request, std::move(*epilogue));
}

constexpr KernelEntry kPoolEntries[] = {
    entry<Pool, make_nhwc>("cpu.pool.nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> nhwc_pool_entries() { return kPoolEntries; }

}  // namespace anneal::cpu
#endif
