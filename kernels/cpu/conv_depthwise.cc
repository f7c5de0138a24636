// Convolution of every channel by itself, along channels: "cpu.conv.depthwise_nhwc".
#include "anneal/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/epilogue.h"
#include "anneal/kernels/cpu/gemm.h"
#include "anneal/kernels/cpu/window.h"
#include "anneal/kernels/cpu/workspace.h"

#ifndef ANNEAL_DEPTHWISE_RUN
#define ANNEAL_DEPTHWISE_RUN
namespace anneal::cpu {
namespace {

// Output pixels of one row.
struct PixelColumn {
  const std::byte* x;             // the first column of taps that meets the input
  int64_t first_column, columns;  // of the kernel
};
struct DepthwiseRun {
  const PixelTaps& taps;  // its rows
  const PixelColumn* pixels;
  int64_t count, channels;
  const float* weights;  // one number per padded channel for each tap
  int64_t padded, kernel_row;
  bool is_3x3;  // and all three rows meet the input
};

}  // namespace
}  // namespace anneal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

#if HWY_TARGET == HWY_AVX3
constexpr int kInnerVectors = 2;
#else
constexpr int kInnerVectors = 1;
#endif

// Elements of x as floats; a zero point is taken off integers, exactly.
template <class T>
HWY_INLINE V load(const T* from, V zero) {
  if constexpr (sizeof(T) == 4) {
    return hn::LoadU(D(), from);
  } else {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<T, D> dn;
    return hn::Sub(hn::ConvertTo(D(), hn::PromoteTo(di, hn::LoadU(dn, from))), zero);
  }
}

// The channels [channel, channel + kVectors * lanes) of one pixel.
template <int kVectors, class T>
HWY_INLINE void pixel_channels(const DepthwiseRun& run, const PixelColumn& pixel, int64_t channel,
                               V zero, float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  V sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
  const float* const weights = run.weights + pixel.first_column * run.padded + channel;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const T* from = reinterpret_cast<const T*>(pixel.x) + run.taps.row_offsets[row] + channel;
    const float* weight = weights + run.taps.kernel_rows[row] * run.kernel_row;
    for (int64_t column = 0; column < pixel.columns; ++column) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[v] =
            hn::MulAdd(load(from + v * kLanes, zero), hn::LoadU(D(), weight + v * kLanes), sums[v]);
      from += run.taps.column_step;
      weight += run.padded;
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], D(), out + channel + v * kLanes);
}

// The same for pixels [begin, end) that meet all of a 3 x 3 kernel, whose weights stay in
// registers.
template <int kVectors, class T>
HWY_INLINE void inner_3x3(const DepthwiseRun& run, int64_t begin, int64_t end, int64_t channel,
                          V zero, float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  V weights[9][kVectors];
#pragma GCC unroll 9
  for (int tap = 0; tap < 9; ++tap)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      weights[tap][v] = hn::LoadU(D(), run.weights + tap * run.padded + channel + v * kLanes);
  const int64_t offsets[3] = {run.taps.row_offsets[0], run.taps.row_offsets[1],
                              run.taps.row_offsets[2]};
  const int64_t step = run.taps.column_step;
  for (int64_t i = begin; i < end; ++i) {
    const T* const from = reinterpret_cast<const T*>(run.pixels[i].x) + channel;
    V sums[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(D());
#pragma GCC unroll 9
    for (int tap = 0; tap < 9; ++tap)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(load(from + offsets[tap / 3] + tap % 3 * step + v * kLanes, zero),
                             weights[tap][v], sums[v]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sums[v], D(), out + i * run.channels + channel + v * kLanes);
  }
}

template <int kVectors, class T>
void run_channels(const DepthwiseRun& run, int64_t channel, V zero, float* out) {
  int64_t i = 0;
  while (i < run.count) {
    int64_t end = i;
    if constexpr (kVectors <= kInnerVectors)
      while (run.is_3x3 && end < run.count && run.pixels[end].columns == 3) ++end;
    if (end > i) {
      inner_3x3<std::min(kVectors, kInnerVectors), T>(run, i, end, channel, zero, out);
      i = end;
    } else {
      pixel_channels<kVectors, T>(run, run.pixels[i], channel, zero, out + i * run.channels);
      ++i;
    }
  }
}

template <class T>
void run_few_channels(const DepthwiseRun& run, float zero, float* out) {
  for (int64_t i = 0; i < run.count; ++i) {
    const PixelColumn& pixel = run.pixels[i];
    for (int64_t channel = 0; channel < run.channels; ++channel) {
      float sum = 0;
      for (int64_t row = 0; row < run.taps.rows; ++row) {
        const T* from = reinterpret_cast<const T*>(pixel.x) + run.taps.row_offsets[row] + channel;
        const float* weight = run.weights + pixel.first_column * run.padded +
                              run.taps.kernel_rows[row] * run.kernel_row + channel;
        for (int64_t column = 0; column < pixel.columns; ++column) {
          const float product = (static_cast<float>(from[column * run.taps.column_step]) - zero) *
                                weight[column * run.padded];
          sum += product;
        }
      }
      out[i * run.channels + channel] = sum;
    }
  }
}

// Channels outermost, so that what a row of pixels has in common stays in the first-level cache.
template <class T>
void run_pixels(const DepthwiseRun& run, float zero_point, float* out) {
  constexpr int64_t kLanes = HWY_LANES(float);
  if (run.channels < kLanes) return run_few_channels<T>(run, zero_point, out);
  const V zero = hn::Set(D(), zero_point);
  const int64_t wide = run.is_3x3 ? kInnerVectors : 4;
  int64_t channel = 0;
  for (; channel + wide * kLanes <= run.channels; channel += wide * kLanes) {
    if (run.is_3x3) {
      run_channels<kInnerVectors, T>(run, channel, zero, out);
    } else {
      run_channels<4, T>(run, channel, zero, out);
    }
  }
  for (; channel + kLanes <= run.channels; channel += kLanes)
    run_channels<1, T>(run, channel, zero, out);
  if (channel < run.channels) run_channels<1, T>(run, run.channels - kLanes, zero, out);
}

}  // namespace

void depthwise_run(const DepthwiseRun& run, DataType dtype, float zero, float* out) {
  switch (dtype) {
    case DataType::kI8:
      return run_pixels<int8_t>(run, zero, out);
    case DataType::kU8:
      return run_pixels<uint8_t>(run, zero, out);
    default:
      return run_pixels<float>(run, 0, out);
  }
}

// In place: whole numbers as integers.
void to_integers(float* values, int64_t count) {
  const hn::RebindToSigned<D> di;
  auto* out = reinterpret_cast<int32_t*>(values);
  int64_t i = 0;
  for (; i + static_cast<int64_t>(HWY_LANES(float)) <= count;
       i += static_cast<int64_t>(HWY_LANES(float)))
    hn::StoreU(hn::ConvertTo(di, hn::LoadU(D(), values + i)), di, out + i);
  for (; i < count; ++i) {
    const auto whole = static_cast<int32_t>(values[i]);
    std::memcpy(values + i, &whole, sizeof(whole));
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

bool is_8bit(DataType dtype) { return dtype == DataType::kI8 || dtype == DataType::kU8; }

// Products of 8-bit differences fit 2^16: sums of so many are whole numbers in f32.
constexpr int64_t kMostExactTaps = 256;

struct PreparedDepthwise final : Prepared {
  TapeSpace space;
  Window window;
  ChannelsLast x;
  int64_t channels = 0, padded = 0;
  int64_t run = 1, runs = 1;  // output pixels of one item, items of an output row
  size_t packed_at = 0, parts_at = 0, part_bytes = 0, tape_at = 0, columns_at = 0;
};

class DepthwiseConv final : public Kernel {
 public:
  DepthwiseConv(const Conv& op, const Request& request, Epilogue epilogue)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        int8_(is_8bit(request.inputs[0].type.dtype)),
        run_(ANNEAL_BY_ISA(isa_of(request.device), depthwise_run)),
        to_integers_(ANNEAL_BY_ISA(isa_of(request.device), to_integers)),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {
    const Tensor* w = request.inputs[1].constant;
    const bool has_zero = request.op_input_count > 3 && request.inputs[3].present;
    if (w == nullptr || (has_zero && request.inputs[3].constant == nullptr)) return;
    const TensorView view = w->view();
    auto fresh = Tensor::allocate(DataType::kF32, {padded(view.dims[0]) * taps_of(view.dims)});
    pack(view, has_zero ? request.inputs[3].constant->view() : TensorView{},
         reinterpret_cast<float*>(fresh.data.data()));
    packed_ = fresh.tensor;
  }

  std::unique_ptr<Prepared> prepare(std::span<const TensorView> inputs,
                                    std::span<const TensorView> outputs,
                                    int threads) const override {
    const TensorView& y = outputs[0];
    TapeSpace::Axes axes{{0}, 1};
    for (int axis = 2; axis < y.dims.rank(); ++axis) axes.rows.push_back(axis);
    auto made = std::make_unique<PreparedDepthwise>();
    PreparedDepthwise& p = *made;
    p.space = epilogue_.space(inputs, outputs, axes);
    if (count(y.dims) == 0) return made;
    p.window = Window(op_, inputs[1].dims, 2, y.dims);
    p.x = ChannelsLast(inputs[0]);
    p.channels = y.dims[1];
    p.padded = padded(p.channels);
    p.run = std::clamp<int64_t>(kRunElements / p.channels, 1, p.window.out[2]);
    p.runs = (p.window.out[2] + p.run - 1) / p.run;
    p.packed_at = p.x.staged_bytes();
    const size_t packed =
        packed_ ? 0 : static_cast<size_t>(p.padded * p.window.taps()) * sizeof(float);
    p.parts_at = align_up(p.packed_at + packed);
    p.columns_at = align_up(static_cast<size_t>(p.run * p.channels) * sizeof(float));
    p.tape_at = p.columns_at + align_up(static_cast<size_t>(p.run) * sizeof(PixelColumn));
    p.part_bytes = align_up(p.tape_at + epilogue_.scratch_bytes());
    p.workspace_bytes = p.parts_at + p.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedDepthwise&>(*args.prepared);
    if (p.space.rows() * p.space.columns() == 0) return;
    const std::byte* x = args.inputs[0].data;
    if (p.x.staged) {
      p.x.stage(args.inputs[0], args.workspace, load_, args.team);
      x = args.workspace;
    }
    const float* weights = nullptr;
    if (packed_) {
      weights = packed_->as<float>().data();
    } else {
      auto* const to = reinterpret_cast<float*>(args.workspace + p.packed_at);
      pack(args.inputs[1], zero_point(args.inputs, 3), to);
      weights = to;
    }
    WorkspaceParts parts(args.workspace + p.parts_at, p.part_bytes);
    const auto run = [&](int64_t begin, int64_t end) {
      const WorkspaceParts::Part part(parts);
      for (int64_t item = begin; item < end; ++item)
        run_pixels(p, args, x, weights, item, part.data());
    };
    args.team.for_ranges(p.x.images * p.window.out[0] * p.window.out[1] * p.runs, 1, run);
  }

 private:
  static constexpr int64_t kRunElements = 4096;
  static int64_t padded(int64_t channels) { return (channels + 15) / 16 * 16; }
  static int64_t taps_of(const Dims& weights) { return count(weights) / weights[0]; }
  TensorView zero_point(std::span<const TensorView> inputs, size_t i) const {
    return int8_ && i < op_inputs_ ? inputs[i] : TensorView{};
  }

  // [channel, 1, taps...] -> [tap][channel] in f32, zero points taken off.
  static void pack(const TensorView& w, const TensorView& zero, float* to) {
    const Spatial size = spatial_of(w.dims, 2, w.dims.rank() - 2, 1);
    const Spatial strides = spatial_of(w.strides, 2, w.dims.rank() - 2, 0);
    const int64_t channels = w.dims[0], width = padded(channels);
    const bool many = zero.dims.rank() > 0 && count(zero.dims) > 1;
    for (int64_t tap = 0; tap < size[0] * size[1] * size[2]; ++tap, to += width) {
      const int64_t offset = tap % size[2] * strides[2] + tap / size[2] % size[1] * strides[1] +
                             tap / size[2] / size[1] * strides[0];
      std::fill(to + channels, to + width, 0.0f);
      for (int64_t c = 0; c < channels; ++c) {
        TensorView at = zero;
        if (many) at.data += c * zero.strides[0];
        at.dims = {};
        to[c] = element(w, offset + c * w.strides[0]) - static_cast<float>(load_zero_point(at));
      }
    }
  }
  static float element(const TensorView& view, int64_t i) {
    const Scalar value =
        load_scalar(view.dtype, view.data + i * static_cast<int64_t>(size_of(view.dtype)));
    return is_8bit(view.dtype) ? static_cast<float>(value.as<int32_t>()) : value.as<float>();
  }

  void run_pixels(const PreparedDepthwise& p, const LaunchArgs& args, const std::byte* x,
                  const float* weights, int64_t item, std::byte* memory) const {
    const int64_t row = item / p.runs;  // over images, z and y
    const int64_t first = item % p.runs * p.run;
    const int64_t pixels = std::min(p.run, p.window.out[2] - first);
    const auto zero = static_cast<float>(load_zero_point(zero_point(args.inputs, 2)));
    auto* const out = reinterpret_cast<float*>(memory);
    auto* const columns = reinterpret_cast<PixelColumn*>(memory + p.columns_at);
    PixelTaps taps;
    taps.enter_row(p.window, p.x, x, row);
    for (int64_t i = 0; i < pixels; ++i) {
      taps.enter_column(p.window, p.x, first + i);
      columns[i] = {taps.x, taps.first_column, taps.columns};
    }
    const Window& window = p.window;
    const bool is_3x3 = taps.rows == 3 && window.taps() == 9 && window.kernel[2] == 3;
    run_(
        {taps, columns, pixels, p.channels, weights, p.padded, window.kernel[2] * p.padded, is_3x3},
        p.x.element, zero, out);
    if (int8_) to_integers_(out, pixels * p.channels);
    epilogue_.run(p.space, args, out, p.channels, row * p.window.out[2] + first, pixels, 0,
                  p.channels, memory + p.tape_at);
  }

  Conv op_;
  size_t op_inputs_;
  bool int8_;
  void (*run_)(const DepthwiseRun&, DataType, float, float*);
  void (*to_integers_)(float*, int64_t);
  LoadBlock load_;
  Epilogue epilogue_;
  std::optional<Tensor> packed_;
};

Made make_depthwise(const Conv& op, const Request& request) {
  const Type& x = request.inputs[0].type;
  const Type& w = request.inputs[1].type;
  const bool int8 = is_8bit(x.dtype) && is_8bit(w.dtype);
  const bool f32 = x.dtype == w.dtype && (x.dtype == DataType::kF32 || x.dtype == DataType::kF16 ||
                                          x.dtype == DataType::kBF16);
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  const int rank = w.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  const auto is = [](Size size, int64_t value) { return size.known() && size.value() == value; };
  if (!is(w.shape[0], op.groups) || !is(w.shape[1], 1))
    return refuse("not one output channel for each input channel");
  int64_t taps = 1;
  for (int axis = 2; axis < rank; ++axis) {
    if (!w.shape[axis].known() || w.shape[axis].value() > kMostExactTaps)
      return refuse("a large kernel, or one of unknown size");
    taps *= w.shape[axis].value();
  }
  if (taps > kMostExactTaps) return refuse("more than 256 taps");
  if (taps / std::max<int64_t>(w.shape[rank - 1].value(), 1) > PixelTaps::kMostRows)
    return refuse("more than 64 rows of taps");
  std::string why_not;
  auto epilogue = Epilogue::make(request, int8 ? DataType::kI32 : DataType::kF32, why_not);
  if (!epilogue) return refuse(std::move(why_not));
  return {std::make_unique<DepthwiseConv>(op, request, std::move(*epilogue)), {}};
}

constexpr KernelEntry kEntries[] = {
    entry<Conv, make_depthwise>("cpu.conv.depthwise_nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> depthwise_conv_entries() { return kEntries; }

}  // namespace anneal::cpu
#endif
