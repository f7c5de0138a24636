// Resize of spatial axes, along channels: "cpu.resize.nhwc".
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
#include <vector>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"
#include "anneal/kernels/cpu/reference/resize_taps.h"
#include "anneal/kernels/spatial_resize.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// out[i] (+)= the sum of weights[k] * sources[k][i].
void blend(const float* const* sources, const float* weights, int64_t count, bool accumulate,
           int64_t n, float* out) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_LANES(float);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    auto sum = accumulate ? hn::LoadU(d, out + i) : hn::Zero(d);
    for (int64_t k = 0; k < count; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, sources[k] + i), sum);
    hn::StoreU(sum, d, out + i);
  }
  for (; i < n; ++i) {
    float sum = accumulate ? out[i] : 0;
    for (int64_t k = 0; k < count; ++k) sum += weights[k] * sources[k][i];
    out[i] = sum;
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
};

struct PreparedResize final : PreparedKernel {
  PixelRuns runs;
  std::array<AxisTaps, 3> axes;
};

class NhwcResize final : public Kernel {
 public:
  NhwcResize(const Resize& op, const Request& request, Epilogue epilogue)
      : op_(op),
        blend_(ANNEAL_BY_ISA(isa_of(request.device), blend)),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView& y = outputs[0];
    const int rank = y.dims.rank();
    auto made = std::make_unique<PreparedResize>();
    PreparedResize& p = *made;
    p.runs = PixelRuns(inputs, outputs, {}, epilogue_, threads, p.workspace_bytes);
    if (p.runs.empty()) return made;
    if (count(inputs[0].dims) == 0)
      fail(ErrorCode::kInvalidArgument, "Resize: an empty tensor has no elements to resize");
    for (size_t i = 0; i < 3; ++i) p.axes[i] = same_positions(p.runs.out()[i]);
    for (size_t i = 0; i < op_.axes.size(); ++i) {
      if (op_.axes[i] < 2) continue;
      p.axes[static_cast<size_t>(3 - (rank - op_.axes[i]))] = taps_of(i, inputs[0].dims, y.dims);
    }
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedResize&>(*args.prepared);
    if (p.runs.empty()) return;
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, run); });
  }

 private:
  static constexpr int64_t kMostSources = 64;

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

  // Adds up the taps of one output pixel.
  class Sum {
   public:
    Sum(const NhwcResize& kernel, int64_t channels, float* out)
        : kernel_(kernel), channels_(channels), out_(out) {}
    void add(const std::byte* source, float weight) {
      if (weight == 0) return;
      sources_[static_cast<size_t>(count_)] = reinterpret_cast<const float*>(source);
      weights_[static_cast<size_t>(count_++)] = weight;
      if (count_ == kMostSources) flush();
    }
    void flush() {
      kernel_.blend_(sources_.data(), weights_.data(), count_, accumulate_, channels_, out_);
      accumulate_ = true;
      count_ = 0;
    }
    bool pending() const { return count_ > 0 || !accumulate_; }

   private:
    const NhwcResize& kernel_;
    int64_t channels_, count_ = 0;
    float* out_;
    bool accumulate_ = false;
    std::array<const float*, kMostSources> sources_;
    std::array<float, kMostSources> weights_;
  };

  void compute(const PreparedResize& p, const PixelRun& run) const {
    const ChannelsLast& x = p.runs.x();
    const Spatial& out_size = p.runs.out();
    const auto size = static_cast<int64_t>(size_of(x.element));
    const int64_t image = run.row / out_size[1] / out_size[0];
    const AxisTaps &zs = p.axes[0], &ys = p.axes[1], &xs = p.axes[2];
    const int64_t z = run.row / out_size[1] % out_size[0] * zs.width;
    const int64_t y = run.row % out_size[1] * ys.width;
    const std::byte* const base = run.x + image * x.image_stride * size;
    const auto at = [&](int64_t kz, int64_t ky, int64_t kx) {
      return base + (zs.positions[z + kz] * x.strides[0] + ys.positions[y + ky] * x.strides[1] +
                     xs.positions[kx] * x.strides[2]) *
                        size;
    };
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t column = (run.first + i) * xs.width;
      std::byte* const out = run.out + i * x.channels * size;
      if (op_.mode == ResizeMode::kNearest) {
        std::memcpy(out, at(0, 0, column), static_cast<size_t>(x.channels * size));
        continue;
      }
      Sum sum(*this, x.channels, reinterpret_cast<float*>(out));
      for (int64_t kz = 0; kz < zs.width; ++kz)
        for (int64_t ky = 0; ky < ys.width; ++ky)
          for (int64_t kx = 0; kx < xs.width; ++kx)
            sum.add(at(kz, ky, column + kx),
                    zs.weights[z + kz] * ys.weights[y + ky] * xs.weights[column + kx]);
      if (sum.pending()) sum.flush();
    }
  }

  Resize op_;
  void (*blend_)(const float* const*, const float*, int64_t, bool, int64_t, float*);
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

std::span<const KernelEntry> nhwc_resize_entries() { return kResizeEntries; }

}  // namespace anneal::cpu
#endif
