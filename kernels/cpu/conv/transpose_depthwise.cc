// ConvTranspose of channels by themselves, as upsampling by learned or bilinear weights:
// "cpu.conv_transpose.depthwise".
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/transpose_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <optional>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/axis_meetings.h"
#include "anneal/kernels/cpu/conv/direct.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// out[i] = the sum of weights[k][i] * pixels[k][i].
void sum_of_products(const float* const* pixels, const float* const* weights, int64_t count,
                     int64_t n, float* out) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = HWY_LANES(float);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    auto sum = hn::Zero(d);
    for (int64_t k = 0; k < count; ++k)
      sum = hn::MulAdd(hn::LoadU(d, weights[k] + i), hn::LoadU(d, pixels[k] + i), sum);
    hn::StoreU(sum, d, out + i);
  }
  for (; i < n; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += weights[k][i] * pixels[k][i];
    out[i] = sum;
  }
}

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {
namespace {

struct PreparedDepthwiseTranspose final : PreparedKernel {
  PixelRuns runs;
  std::array<AxisMeetings, 3> axes;
  Spatial kernel{};
};

class DepthwiseTranspose final : public Kernel {
 public:
  DepthwiseTranspose(const ConvTranspose& op, const Request& request, Epilogue epilogue)
      : op_(op),
        sum_(ANNEAL_BY_ISA(isa_of(request.device), sum_of_products)),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {
    const TensorView w = kernel_view(*request.inputs[1].constant);
    packed_ = packed_constant(request, "f32 taps of channels",
                              static_cast<size_t>(count(w.dims)) * sizeof(float),
                              [&](std::byte* to) { pack(w, reinterpret_cast<float*>(to)); });
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedDepthwiseTranspose>();
    PreparedDepthwiseTranspose& p = *made;
    p.runs = PixelRuns(inputs, outputs, {}, epilogue_, threads, p.workspace_bytes);
    if (p.runs.empty()) return made;
    const int spatial = inputs[0].dims.rank() - 2;
    p.kernel = spatial_of(inputs[1].dims, 2, spatial, 1);
    const Spatial strides = spatial_of(op_.strides, 0, spatial, 1);
    const Spatial pads = spatial_of(op_.pads_begin, 0, spatial, 0);
    const Spatial dilations = spatial_of(op_.dilations, 0, spatial, 1);
    for (size_t i = 0; i < 3; ++i)
      p.axes[i] = AxisMeetings(p.runs.x().size[i], p.runs.out()[i], p.kernel[i], strides[i],
                               pads[i], dilations[i]);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedDepthwiseTranspose&>(*args.prepared);
    if (p.runs.empty()) return;
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, run); });
  }

 private:
  // [channel, 1, taps...] -> [tap][channel].
  static void pack(const TensorView& w, float* to) {
    const int spatial = w.dims.rank() - 2;
    const Spatial size = spatial_of(w.dims, 2, spatial, 1);
    const Spatial strides = spatial_of(w.strides, 2, spatial, 0);
    for (int64_t z = 0; z < size[0]; ++z)
      for (int64_t y = 0; y < size[1]; ++y)
        for (int64_t x = 0; x < size[2]; ++x)
          for (int64_t channel = 0; channel < w.dims[0]; ++channel)
            *to++ = w.as<const float>()[channel * w.strides[0] + z * strides[0] + y * strides[1] +
                                        x * strides[2]];
  }

  void compute(const PreparedDepthwiseTranspose& p, const PixelRun& run) const {
    const ChannelsLast& x = p.runs.x();
    const Spatial& out = p.runs.out();
    const float* const image =
        reinterpret_cast<const float*>(run.x) + run.row / out[1] / out[0] * x.image_stride;
    const auto* const weights = reinterpret_cast<const float*>(packed_->bytes().data());
    std::array<const float*, kMostDirectTaps> pixels, factors;
    for (int64_t i = 0; i < run.count; ++i) {
      size_t count = 0;
      for (const Meeting& z : p.axes[0].of(run.row / out[1] % out[0]))
        for (const Meeting& y : p.axes[1].of(run.row % out[1]))
          for (const Meeting& at : p.axes[2].of(run.first + i)) {
            pixels[count] = image + z.position * x.strides[0] + y.position * x.strides[1] +
                            at.position * x.strides[2];
            const int64_t tap = (z.tap * p.kernel[1] + y.tap) * p.kernel[2] + at.tap;
            factors[count++] = weights + tap * x.channels;
          }
      sum_(pixels.data(), factors.data(), static_cast<int64_t>(count), x.channels,
           reinterpret_cast<float*>(run.out) + i * x.channels);
    }
  }

  ConvTranspose op_;
  void (*sum_)(const float* const*, const float* const*, int64_t, int64_t, float*);
  LoadBlock load_;
  Epilogue epilogue_;
  std::optional<Tensor> packed_;
};

KernelResult make_depthwise(const ConvTranspose& op, const Request& request) {
  if (request.inputs[0].type.dtype != DataType::kF32) return refuse("only f32");
  const Tensor* w = request.inputs[1].constant;
  if (w == nullptr) return refuse("weights that are not constant");
  const Dims& dims = w->dims();
  if (dims.rank() > 5) return refuse("only one to three spatial axes");
  if (op.groups != dims[0] || dims[1] != 1) return refuse("not a channel for each group");
  if (count(dims) == 0 || count(dims) / dims[0] > kMostDirectTaps)
    return refuse("more than 256 taps, or none");
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<DepthwiseTranspose>(op, request, std::move(*epilogue));
}

constexpr KernelEntry kDepthwiseTransposeEntries[] = {
    entry<ConvTranspose, make_depthwise>("cpu.conv_transpose.depthwise", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> depthwise_conv_transpose_entries() {
  return kDepthwiseTransposeEntries;
}

}  // namespace anneal::cpu
#endif
