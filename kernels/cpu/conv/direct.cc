// "cpu.conv.depthwise_nhwc" and "cpu.conv.grouped_nhwc".
#include "anneal/kernels/cpu/conv/direct.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kChannelGrain = 64;

// Channels of a group; of more a product of matrices is as fast.
constexpr int64_t kMostOfGroup = 8;
constexpr int64_t kMostProductsOfOneLane = 4;

// Input and output channels of a group.
struct GroupShape {
  int64_t inputs = 1, outputs = 1;
  bool is_depthwise() const { return inputs == 1 && outputs == 1; }
};

// The `lookup` of RunGrouped; empty if a vector of outputs needs more than two of x.
std::vector<int32_t> lookup_of(const GroupShape& group, int64_t channels, int64_t lanes) {
  const int64_t x_channels = channels / group.outputs * group.inputs;
  const auto first_of = [&](int64_t output) { return output / group.outputs * group.inputs; };
  const int64_t vectors = ceil_div(channels, lanes);
  int64_t most = 1;
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t start = vector_start(v, lanes, channels);
    const int64_t last = std::min(start + lanes, channels) - 1;
    most = std::max(most, first_of(last) + group.inputs - first_of(start));
  }
  // A single lane loads what it needs.
  if (lanes > 1 && most > 2 * lanes) return {};
  const int64_t tables = lanes > 1 && most > lanes ? 2 : 1;
  std::vector<int32_t> lookup = {static_cast<int32_t>(tables)};
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t start = vector_start(v, lanes, channels);
    const int64_t base =
        std::max<int64_t>(std::min(first_of(start), x_channels - tables * lanes), 0);
    lookup.push_back(static_cast<int32_t>(base));
    for (int64_t i = 0; i < group.inputs; ++i)
      for (int64_t lane = 0; lane < lanes; ++lane)
        lookup.push_back(
            static_cast<int32_t>(start + lane < channels ? first_of(start + lane) + i - base : 0));
  }
  return lookup;
}

struct PreparedDirect final : PreparedKernel {
  PixelRuns runs;
  Window window;
  int64_t padded = 0;
};

class DirectConv final : public Kernel {
 public:
  DirectConv(const Conv& op, const GroupShape& group, const RunDepthwise& depthwise,
             std::vector<int32_t> lookup, const Request& request, Epilogue epilogue)
      : op_(op),
        group_(group),
        lookup_(std::move(lookup)),
        run_depthwise_(depthwise),
        run_grouped_(run_grouped(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        epilogue_(std::move(epilogue)) {
    const Tensor* w = request.inputs[1].constant;
    if (w == nullptr) return;
    const TensorView view = kernel_view(*w);
    packed_ = packed_constant(request, "f32 taps",
                              static_cast<size_t>(packed_count(view.dims)) * sizeof(float),
                              [&](std::byte* to) { pack(view, reinterpret_cast<float*>(to)); });
    pack_dots(view, request);
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const Dims& w = inputs[1].dims;
    auto made = std::make_unique<PreparedDirect>();
    PreparedDirect& p = *made;
    const PixelMemory memory{
        .element = sizeof(float),
        .shared = packed_ || w[0] == 0 ? 0 : static_cast<size_t>(packed_count(w)) * sizeof(float),
        .per_pixel = sizeof(PixelColumn),
        .channel_grain = group_.is_depthwise() ? kChannelGrain : 0,
        .keeps_bf16 = group_.is_depthwise(),
        .repeats = group_.is_depthwise() ? outputs[0].dims[1] / op_.groups : 1,
        .finishes = group_.is_depthwise() ? run_depthwise_.finishes : stores_nothing};
    p.runs = PixelRuns(inputs, outputs, memory, epilogue_, threads, p.workspace_bytes);
    if (p.runs.empty()) return made;
    p.window = Window(op_, w, 2, outputs[0].dims);
    p.padded = padded(w[0]);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedDirect&>(*args.prepared);
    if (p.runs.empty()) return;
    const float* weights = nullptr;
    if (packed_) {
      weights = reinterpret_cast<const float*>(packed_->bytes().data());
    } else {
      auto* const to = reinterpret_cast<float*>(p.runs.shared(args));
      pack(args.inputs[1], to);
      weights = to;
    }
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, run, weights); });
  }

 private:
  static int64_t padded(int64_t channels) { return (channels + 15) / 16 * 16; }
  static int64_t packed_count(const Dims& w) { return padded(w[0]) * (count(w) / w[0]); }

  // [output, input of its group, taps...] -> [tap][input][output] in f32.
  static void pack(const TensorView& w, float* to) {
    const Spatial size = spatial_of(w.dims, 2, w.dims.rank() - 2, 1);
    const Spatial strides = spatial_of(w.strides, 2, w.dims.rank() - 2, 0);
    const int64_t channels = w.dims[0], width = padded(channels);
    for (int64_t tap = 0; tap < size[0] * size[1] * size[2]; ++tap) {
      const int64_t offset = tap % size[2] * strides[2] + tap / size[2] % size[1] * strides[1] +
                             tap / size[2] / size[1] * strides[0];
      for (int64_t i = 0; i < w.dims[1]; ++i, to += width) {
        std::fill(to + channels, to + width, 0.0f);
        for (int64_t c = 0; c < channels; ++c)
          to[c] = element(w, offset + c * w.strides[0] + i * w.strides[1]);
      }
    }
  }
  // Packs weights [channels, 1, taps...], if dot products use them.
  void pack_dots(const TensorView& w, const Request& request) {
    const int64_t columns = w.dims[w.dims.rank() - 1];
    if (!group_.is_depthwise() || w.dtype != DataType::kBF16 || w.dims[0] < kDotChannels ||
        !computes_bf16(isa_of(request.device)) || columns > 5 ||
        !slides(columns, op_.strides.back(), op_.dilations.back()))
      return;
    dots_ = {.rows = count(w.dims) / w.dims[0] / columns,
             .columns = columns,
             .channels = w.dims[0] / kDotChannels * kDotChannels,
             .padded = padded(w.dims[0])};
    packed_dots_ =
        packed_constant(request, "bf16 taps of row pairs", dots_.bytes(), [&](std::byte* to) {
          pack_dot_taps(dots_, reinterpret_cast<const float*>(packed_->bytes().data()), to);
        });
  }
  static float element(const TensorView& view, int64_t i) {
    return load_scalar(view.dtype, view.data + i * static_cast<int64_t>(size_of(view.dtype)))
        .as<float>();
  }

  void compute(const PreparedDirect& p, const PixelRun& pixels, const float* weights) const {
    const ChannelsLast& x = p.runs.x();
    const Window& window = p.window;
    auto* const out = reinterpret_cast<float*>(pixels.out);
    PixelTaps taps;
    taps.enter_row(window, x, pixels.x, pixels.row);
    DirectRun run{.taps = taps,
                  .pixels = nullptr,
                  .count = pixels.count,
                  .channels = pixels.channels,
                  .weights = weights + pixels.channel,
                  .padded = p.padded,
                  .kernel_row = window.kernel[2] * group_.inputs * p.padded,
                  .element = x.element,
                  .finish = pixels.finish};
    const int64_t first_channel = pixels.channel * static_cast<int64_t>(size_of(x.element));
    if (group_.is_depthwise() && slides(window)) {
      run.x = taps.image + first_channel;
      run.first_column = pixels.first * window.stride[2] - window.pad[2];
      run.input_columns = x.size[2];
      run.kernel_columns = window.kernel[2];
      run.stride = window.stride[2];
      if (packed_dots_ && x.element == DataType::kBF16) {
        run.dot_row = dots_.row_bytes();
        run.dot_taps =
            packed_dots_->bytes().data() + DotTaps::bytes_of(dots_.columns, pixels.channel);
        depthwise_dots(run, out);
        run.first_channel = run.channels / kDotChannels * kDotChannels;
      }
      return run_depthwise_.run(run, out);
    }
    auto* const columns = reinterpret_cast<PixelColumn*>(pixels.extra);
    for (int64_t i = 0; i < pixels.count; ++i) {
      taps.enter_column(window, x, pixels.first + i);
      columns[i] = {taps.x + first_channel, taps.first_column, taps.columns};
    }
    run.pixels = columns;
    if (group_.is_depthwise()) return run_depthwise_.run(run, out);
    run.group_channels = group_.inputs;
    run.x_channels = x.channels;
    run.lookup = lookup_.data();
    run_grouped_.run(run, out);
  }

  Conv op_;
  GroupShape group_;
  std::vector<int32_t> lookup_;  // empty for depthwise
  RunDepthwise run_depthwise_;
  RunGrouped run_grouped_;
  LoadBlock load_;
  Epilogue epilogue_;
  std::optional<Tensor> packed_;
  DotTaps dots_;
  std::optional<Tensor> packed_dots_;
};

bool is_known(Size size, int64_t value) { return size.known() && size.value() == value; }

// Why the taps are not for these kernels; empty if they are.
std::string taps_mismatch(const Shape& w) {
  int64_t taps = 1;
  for (int axis = 2; axis < w.rank(); ++axis) {
    if (!w[axis].known() || w[axis].value() > kMostDirectTaps)
      return "a large kernel, or one of unknown size";
    taps *= w[axis].value();
  }
  if (taps > kMostDirectTaps) return "more than 256 taps";
  if (taps / std::max<int64_t>(w[w.rank() - 1].value(), 1) > PixelTaps::kMostRows)
    return "more than 64 rows of taps";
  return {};
}

bool is_real(DataType x, DataType w) { return x == w && (x == DataType::kF32 || is_half(x)); }

KernelResult make_direct(const Conv& op, const GroupShape& group, const RunDepthwise& depthwise,
                         std::vector<int32_t> lookup, const Request& request) {
  if (std::string mismatch = taps_mismatch(request.inputs[1].type.shape); !mismatch.empty())
    return refuse(std::move(mismatch));
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<DirectConv>(op, group, depthwise, std::move(lookup), request,
                                      std::move(*epilogue));
}

// The widest loops that this many channels fill.
RunDepthwise depthwise_of(Isa isa, int64_t channels) {
  for (const Isa each : {Isa::kFull, Isa::kAvx512, Isa::kAvx2})
    if (const RunDepthwise loops = run_depthwise(each); each <= isa && loops.lanes <= channels)
      return loops;
  return run_depthwise(Isa::kBaseline);
}

KernelResult make_depthwise_nhwc(const Conv& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype;
  const Type& w = request.inputs[1].type;
  if (!is_real(x, w.dtype)) return refuse("only f32, f16 and bf16 operands");
  if (w.shape.rank() < 3 || w.shape.rank() > 5) return refuse("only one to three spatial axes");
  if (!is_known(w.shape[1], 1)) return refuse("groups of several input channels");
  if (!w.shape[0].known() || w.shape[0].value() > kMostRepeats * op.groups)
    return refuse("groups of many output channels, or of an unknown number");
  const int64_t channels = w.shape[0].value();
  if (channels != op.groups && op.groups < 2) return refuse("a single group");
  if (channels != op.groups && is_half(x)) return refuse("several output channels of 16 bits");
  const RunDepthwise loops = depthwise_of(isa_of(request.device), channels);
  if (loops.lanes > channels) return refuse("fewer channels than the lanes of a vector");
  return make_direct(op, {}, loops, {}, request);
}

KernelResult make_grouped(const Conv& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype;
  const Type& w = request.inputs[1].type;
  if (!is_real(x, w.dtype)) return refuse("only f32, f16 and bf16 operands");
  if (w.shape.rank() < 3 || w.shape.rank() > 5) return refuse("only one to three spatial axes");
  if (op.groups < 2) return refuse("a single group");
  if (!w.shape[0].known() || !w.shape[1].known()) return refuse("weights of unknown size");
  const int64_t channels = w.shape[0].value();
  const GroupShape group{w.shape[1].value(), channels / op.groups};
  if (group.inputs < 1 || group.outputs < 1 || group.inputs > kMostOfGroup ||
      group.outputs > kMostOfGroup)
    return refuse("groups of many channels, or none");
  if (group.is_depthwise()) return refuse("one output channel for each input channel");
  const int64_t lanes = run_grouped(isa_of(request.device)).lanes;
  if (!request.ignore_speed_heuristics && lanes == 1 &&
      group.inputs * group.outputs > kMostProductsOfOneLane)
    return refuse("a product of matrices is faster without vectors");
  auto lookup = lookup_of(group, channels, lanes);
  if (lookup.empty()) return refuse("groups of many more input channels than output channels");
  return make_direct(op, group, {}, std::move(lookup), request);
}

constexpr KernelEntry kDirectEntries[] = {
    entry<Conv, make_depthwise_nhwc>("cpu.conv.depthwise_nhwc", Layout::kChannelsLast),
    entry<Conv, make_grouped>("cpu.conv.grouped_nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> direct_conv_entries() { return kDirectEntries; }

}  // namespace anneal::cpu
