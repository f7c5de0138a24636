// Resize of spatial axes, along channels: "cpu.resize.nhwc". The rows of the input that a row of
// the output needs become one row first, of which each pixel takes its part.
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/movement/resize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"
#include "anneal/kernels/cpu/movement/blend.h"
#include "anneal/kernels/cpu/movement/resized_row.h"
#include "anneal/kernels/cpu/reference/resize_taps.h"
#include "anneal/kernels/spatial_resize.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
constexpr int64_t kLanes = HWY_LANES(float);

// Calls f(i, load, store) for vectors of n numbers; those of the last one read and write its rest.
template <class F>
HWY_INLINE void for_vectors(int64_t n, F f) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    f(
        i, [d](const float* p) HWY_ATTR { return hn::LoadU(d, p); },
        [d](hn::Vec<D> v, float* p) HWY_ATTR { hn::StoreU(v, d, p); });
  if (i == n) return;
  const auto rest = hn::FirstN(d, static_cast<size_t>(n - i));
  f(
      i, [d, rest](const float* p) HWY_ATTR { return hn::MaskedLoad(rest, d, p); },
      [d, rest](hn::Vec<D> v, float* p) HWY_ATTR { hn::BlendedStore(v, rest, d, p); });
}

// out[i] (+)= the sum of weights[k] * sources[k][i].
void blend(const float* const* sources, const float* weights, int64_t count, bool accumulate,
           int64_t n, float* out) {
  const D d;
  for_vectors(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    auto sum = accumulate ? load(out + i) : hn::Zero(d);
    for (int64_t k = 0; k < count; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k]), load(sources[k] + i), sum);
    store(sum, out + i);
  });
}

// Each pixel of out: the sum of its taps of a row of pixels. Taps of weight 0 are not read.
void blend_row(const ResizedRow& row) {
  const D d;
  const int64_t* positions = row.positions;
  const float* weights = row.weights;
  float* out = row.out;
  for (int64_t i = 0; i < row.pixels; ++i, positions += row.taps, weights += row.taps) {
    const auto at = [&](int64_t k)
                        HWY_ATTR { return row.x + (positions[k] - row.first) * row.pixel_stride; };
    if (row.channels == 1 && row.taps == 2 && weights[0] != 0 && weights[1] != 0) {
      *out = weights[0] * *at(0) + weights[1] * *at(1);
    } else if (row.channels == 1) {
      float sum = 0;
      for (int64_t k = 0; k < row.taps; ++k)
        if (weights[k] != 0) sum += weights[k] * *at(k);
      *out = sum;
    } else if (row.taps == 2 && weights[0] != 0 && weights[1] != 0) {
      const float *const left = at(0), *const right = at(1);
      const auto a = hn::Set(d, weights[0]), b = hn::Set(d, weights[1]);
      for_vectors(row.channels, [&](int64_t c, auto load, auto store) HWY_ATTR {
        store(hn::MulAdd(b, load(right + c), hn::Mul(a, load(left + c))), out + c);
      });
    } else {
      for_vectors(row.channels, [&](int64_t c, auto load, auto store) HWY_ATTR {
        auto sum = hn::Zero(d);
        for (int64_t k = 0; k < row.taps; ++k)
          if (weights[k] != 0) sum = hn::MulAdd(hn::Set(d, weights[k]), load(at(k) + c), sum);
        store(sum, out + c);
      });
    }
    out += row.channels;
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

// Taps of all output positions of one axis.
struct AxisTaps {
  int64_t width = 1;
  std::vector<int64_t> positions;
  std::vector<float> weights;
  int64_t first = 0, last = 0;  // of the positions

  void find_ends() {
    const auto [least, most] = std::ranges::minmax(positions);
    first = least, last = most;
  }
};

struct PreparedResize final : PreparedKernel {
  PixelRuns runs;
  std::array<AxisTaps, 3> axes;
};

class NhwcResize final : public Kernel {
 public:
  NhwcResize(const Resize& op, const Request& request, Epilogue epilogue)
      : op_(op),
        blend_(blend_of(isa_of(request.device))),
        blend_row_(ANNEAL_BY_ISA(isa_of(request.device), blend_row)),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    std::vector<TensorView> from(inputs.begin(), inputs.end()), to(outputs.begin(), outputs.end());
    if (epilogue_.is_copy()) make_planes(from[0], to[0]);
    const TensorView& y = to[0];
    const int rank = y.dims.rank();
    auto made = std::make_unique<PreparedResize>();
    PreparedResize& p = *made;
    const PixelMemory memory{.per_run = row_bytes(inputs[0].dims)};
    p.runs = PixelRuns(from, to, memory, epilogue_, threads, p.workspace_bytes);
    if (p.runs.empty()) return made;
    if (count(inputs[0].dims) == 0)
      fail(ErrorCode::kInvalidArgument, "Resize: an empty tensor has no elements to resize");
    for (size_t i = 0; i < 3; ++i) p.axes[i] = same_positions(p.runs.out()[i]);
    for (size_t i = 0; i < op_.axes.size(); ++i) {
      if (op_.axes[i] < 2) continue;
      p.axes[static_cast<size_t>(3 - (rank - op_.axes[i]))] = taps_of(i, inputs[0].dims, y.dims);
    }
    p.axes[2].find_ends();
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedResize&>(*args.prepared);
    if (p.runs.empty()) return;
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, run); });
  }

 private:
  // Each channel becomes an image, where x is larger than y and would have to be copied to bring
  // its few channels beside each other.
  static void make_planes(TensorView& x, TensorView& y) {
    constexpr int64_t kFewChannels = 4;
    const int64_t channels = x.dims[1];
    if (channels < 2 || channels > kFewChannels || x.strides[1] == 1 || is_half(x.dtype) ||
        count(y.dims) > count(x.dims))
      return;
    for (const TensorView* view : {&x, &y})
      if (view->dims[0] != 1 && view->strides[0] != channels * view->strides[1]) return;
    for (TensorView* view : {&x, &y}) {
      view->dims[0] *= channels;
      view->dims[1] = 1;
      view->strides[0] = view->strides[1];
    }
  }

  // Of a row of f32.
  size_t row_bytes(const Dims& x) const {
    return op_.mode == ResizeMode::kNearest ? 0 : static_cast<size_t>(x[1] * x[x.rank() - 1]) * 4;
  }

  static AxisTaps same_positions(int64_t size) {
    AxisTaps taps;
    for (int64_t i = 0; i < size; ++i) {
      taps.positions.push_back(i);
      taps.weights.push_back(1);
    }
    return taps;
  }
  AxisTaps taps_of(size_t i, const Dims& x, const Dims& y) const {
    const ResizeAxis axis = resize_axis(op_, i, x, y, {});
    const TapSupport support = support_of(op_, axis);
    AxisTaps taps;
    taps.width = support.taps;
    std::vector<Tap> all(static_cast<size_t>(support.taps));
    for (int64_t output = 0; output < axis.out; ++output) {
      fill_taps(op_, axis, support, output, all.data());
      for (const Tap& tap : all) {
        taps.positions.push_back(tap.position);
        taps.weights.push_back(static_cast<float>(tap.weight));
      }
    }
    return taps;
  }

  // Where the tap of a row of the output is: its first pixel.
  static const std::byte* row_of(const PreparedResize& p, const PixelRun& run, int64_t z,
                                 int64_t y) {
    const ChannelsLast& x = p.runs.x();
    const int64_t image = run.row / p.runs.out()[1] / p.runs.out()[0];
    const int64_t at = image * x.image_stride +
                       p.axes[0].positions[static_cast<size_t>(z)] * x.strides[0] +
                       p.axes[1].positions[static_cast<size_t>(y)] * x.strides[1];
    return run.x + at * static_cast<int64_t>(size_of(x.element));
  }

  void compute(const PreparedResize& p, const PixelRun& run) const {
    const Spatial& out_size = p.runs.out();
    const int64_t z = run.row / out_size[1] % out_size[0] * p.axes[0].width;
    const int64_t y = run.row % out_size[1] * p.axes[1].width;
    op_.mode == ResizeMode::kNearest ? copy_nearest(p, run, row_of(p, run, z, y))
                                     : blend_taps(p, run, z, y);
  }

  static void copy_nearest(const PreparedResize& p, const PixelRun& run, const std::byte* row) {
    const ChannelsLast& x = p.runs.x();
    const auto size = static_cast<int64_t>(size_of(x.element));
    const int64_t* const positions = p.axes[2].positions.data() + run.first * p.axes[2].width;
    const int64_t bytes = x.channels * size, pixel = x.strides[2] * size;
    const auto copy = [&](auto of_pixel) {
      for (int64_t i = 0; i < run.count; ++i)
        std::memcpy(run.out + i * bytes, row + positions[i * p.axes[2].width] * pixel, of_pixel);
    };
    switch (bytes) {
      case 1:
        return copy(std::integral_constant<size_t, 1>());
      case 4:
        return copy(std::integral_constant<size_t, 4>());
      default:
        copy(static_cast<size_t>(bytes));
    }
  }

  void blend_taps(const PreparedResize& p, const PixelRun& run, int64_t z, int64_t y) const {
    const ChannelsLast& x = p.runs.x();
    const AxisTaps& xs = p.axes[2];
    ResizedRow row{.channels = x.channels, .pixels = run.count, .taps = xs.width};
    row.positions = xs.positions.data() + run.first * xs.width;
    row.weights = xs.weights.data() + run.first * xs.width;
    row.out = reinterpret_cast<float*>(run.out);
    int64_t last = xs.last;
    row.first = xs.first;
    if (run.count < p.runs.out()[2]) {
      const auto [least, most] =
          std::minmax_element(row.positions, row.positions + run.count * xs.width);
      row.first = *least, last = *most;
    }
    join_rows(p, run, z, y, last + 1 - row.first, row);
    blend_row_(row);
  }

  // Calls f(pixel, weight) with pixel `first` of each row of the input that the row of the output
  // meets with a weight.
  template <class F>
  static void for_rows(const PreparedResize& p, const PixelRun& run, int64_t z, int64_t y,
                       int64_t first, F&& f) {
    const AxisTaps &zs = p.axes[0], &ys = p.axes[1];
    for (int64_t kz = 0; kz < zs.width; ++kz)
      for (int64_t ky = 0; ky < ys.width; ++ky) {
        const float weight =
            zs.weights[static_cast<size_t>(z + kz)] * ys.weights[static_cast<size_t>(y + ky)];
        if (weight != 0)
          f(reinterpret_cast<const float*>(row_of(p, run, z + kz, y + ky)) +
                first * p.runs.x().strides[2],
            weight);
      }
  }

  // Gives `row` its pixels: those of one row of the input, or the weighted sum of several rows.
  void join_rows(const PreparedResize& p, const PixelRun& run, int64_t z, int64_t y, int64_t pixels,
                 ResizedRow& row) const {
    const ChannelsLast& x = p.runs.x();
    int64_t rows = 0;
    float weight_of_last = 0;
    for_rows(p, run, z, y, row.first, [&](const float* pixel, float weight) {
      ++rows;
      row.x = pixel;
      weight_of_last = weight;
    });
    row.pixel_stride = x.strides[2];
    if (rows == 1 && weight_of_last == 1) return;
    auto* const joined = reinterpret_cast<float*>(run.extra);
    // Pixels without gaps are one run of numbers.
    const int64_t runs = x.strides[2] == x.channels ? 1 : pixels;
    const int64_t each = pixels * x.channels / runs;
    for (int64_t i = 0; i < runs; ++i) {
      BlendSum sum(blend_, each, joined + i * each);
      for_rows(p, run, z, y, row.first + i,
               [&](const float* pixel, float weight) { sum.add(pixel, weight); });
      sum.finish();
    }
    row.x = joined;
    row.pixel_stride = x.channels;
  }

  Resize op_;
  Blend blend_;
  void (*blend_row_)(const ResizedRow&);
  LoadBlock load_;
  Epilogue epilogue_;
};

KernelResult make_nhwc(const Resize& given, const Request& request) {
  const auto known = spatial_resize(given, request);
  if (!known) return refuse(known.reason());
  const Resize& op = *known;
  const DataType x = request.inputs[0].type.dtype;
  const bool f32 = x == DataType::kF32 || is_half(x);
  const bool int8 = is_8bit(x);
  if (!f32 && !(int8 && op.mode == ResizeMode::kNearest))
    return refuse("only f32, f16, bf16, and nearest 8-bit elements");
  auto epilogue = Epilogue::make(request, int8 ? x : DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<NhwcResize>(op, request, std::move(*epilogue));
}

constexpr KernelEntry kResizeEntries[] = {
    entry<Resize, make_nhwc>("cpu.resize.nhwc", Layout::kChannelsLast),
};

}  // namespace

Blend blend_of(Isa isa) { return ANNEAL_BY_ISA(isa, blend); }

std::span<const KernelEntry> nhwc_resize_entries() { return kResizeEntries; }

}  // namespace anneal::cpu
#endif
