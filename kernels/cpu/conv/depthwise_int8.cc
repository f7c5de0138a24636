// "cpu.conv.depthwise_int8".
#include "anneal/kernels/cpu/conv/depthwise_int8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/direct.h"
#include "anneal/kernels/cpu/conv/pixel_runs.h"
#include "anneal/kernels/cpu/conv/start_offsets.h"
#include "anneal/kernels/cpu/conv/window.h"
#include "anneal/kernels/cpu/gemm/gemm.h"

namespace anneal::cpu {
namespace {

constexpr size_t kLaneBytes = 4;
// Staged columns of some vectors: with a run's accumulators they fit the first-level cache.
constexpr int64_t kStageBytes = 16384;
constexpr int64_t kLeastPixels = 8;
constexpr int64_t kMostColumns = 256;  // of a kernel: all columns are staged
constexpr int64_t kMostLanes = 16;

// Weights [C, 1, taps...], less their zero points.
class Differences {
 public:
  Differences(const TensorView& w, const TensorView& zero)
      : w_(w),
        zero_(zero),
        size_(spatial_of(w.dims, 2, w.dims.rank() - 2, 1)),
        strides_(spatial_of(w.strides, 2, w.dims.rank() - 2, 0)),
        has_many_zeros_(zero.dims.rank() > 0 && count(zero.dims) > 1) {}

  int64_t channels() const { return w_.dims[0]; }
  int64_t rows() const { return size_[0] * size_[1]; }
  int64_t columns() const { return size_[2]; }
  int32_t at(int64_t channel, int64_t row, int64_t column) const {
    return element(w_, channel * w_.strides[0] + row / size_[1] * strides_[0] +
                           row % size_[1] * strides_[1] + column * strides_[2]) -
           (zero_.data == nullptr
                ? 0
                : element(zero_, has_many_zeros_ ? channel * zero_.strides[0] : 0));
  }
  bool fit_bytes() const {
    for (int64_t channel = 0; channel < channels(); ++channel)
      for (int64_t row = 0; row < rows(); ++row)
        for (int64_t column = 0; column < columns(); ++column)
          if (const int32_t each = at(channel, row, column); each < -128 || each > 127)
            return false;
    return true;
  }

 private:
  static int32_t element(const TensorView& view, int64_t i) {
    return view.dtype == DataType::kI8 ? static_cast<int32_t>(view.as<const int8_t>()[i])
                                       : static_cast<int32_t>(view.as<const uint8_t>()[i]);
  }
  TensorView w_, zero_;
  Spatial size_, strides_;
  bool has_many_zeros_;
};

// How weights lie for the inner loops: vectors of channels, of which the last may overlap the one
// before, each with groups of rows, each with columns of the kernel. Behind them is the sum of each
// channel's differences.
struct PackedDepthwise {
  PackedDepthwise(const DepthwiseInt8& loops, const Dims& w)
      : lanes(loops.lanes),
        rows_of_lane(loops.rows_of_lane),
        channels(w[0]),
        vectors(ceil_div(w[0], loops.lanes)) {
    const Spatial size = spatial_of(w, 2, w.rank() - 2, 1);
    groups = (size[0] * size[1] + rows_of_lane - 1) / rows_of_lane;
    columns = size[2];
  }
  int64_t first_channel(int64_t vector) const { return std::min(vector * lanes, channels - lanes); }
  size_t column_bytes() const { return static_cast<size_t>(lanes) * kLaneBytes; }
  size_t vector_bytes() const { return static_cast<size_t>(groups * columns) * column_bytes(); }
  size_t sums_at() const { return static_cast<size_t>(vectors) * vector_bytes(); }
  size_t sums_bytes() const { return static_cast<size_t>(vectors) * column_bytes(); }
  size_t bytes() const { return sums_at() + sums_bytes(); }

  void pack(const Differences& from, std::byte* to) const {
    rows_of_lane == 4 ? pack_lanes<int8_t>(from, to) : pack_lanes<int16_t>(from, to);
  }

  int64_t lanes, rows_of_lane, channels, vectors, groups = 0, columns = 0;

 private:
  template <class T>
  void pack_lanes(const Differences& from, std::byte* memory) const {
    auto* to = reinterpret_cast<T*>(memory);
    auto* const sums = reinterpret_cast<int32_t*>(memory + sums_at());
    std::fill_n(sums, vectors * lanes, 0);
    for (int64_t vector = 0; vector < vectors; ++vector)
      for (int64_t group = 0; group < groups; ++group)
        for (int64_t column = 0; column < columns; ++column)
          for (int64_t lane = 0; lane < lanes; ++lane)
            for (int64_t i = 0; i < rows_of_lane; ++i) {
              const int64_t row = group * rows_of_lane + i;
              const int32_t each =
                  row < from.rows() ? from.at(first_channel(vector) + lane, row, column) : 0;
              *to++ = static_cast<T>(each);
              sums[vector * lanes + lane] += each;
            }
  }
};

struct PreparedInt8Depthwise final : PreparedKernel {
  PixelRuns runs;
  Window window;
  int64_t pixels = 0, columns = 0;  // staged at one time, at most
};

class Int8DepthwiseConv final : public Kernel {
 public:
  Int8DepthwiseConv(const Conv& op, const DepthwiseInt8& loops, const Request& request,
                    std::vector<int32_t> offsets, Epilogue epilogue)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        x_(request.inputs[0].type.dtype),
        loops_(loops),
        load_(load_block(isa_of(request.device))),
        offsets_(std::move(offsets)),
        epilogue_(std::move(epilogue)) {}

  void pack(const Request& request, const Differences& weights, const Dims& dims) {
    const PackedDepthwise layout(loops_, dims);
    packed_ = packed_constant(
        request, fmt::format("{} rows, {} channels", layout.rows_of_lane, layout.lanes),
        layout.bytes(), [&](std::byte* to) { layout.pack(weights, to); });
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedInt8Depthwise>();
    PreparedInt8Depthwise& p = *made;
    const PackedDepthwise layout(loops_, inputs[1].dims);
    p.window = Window(op_, inputs[1].dims, 2, outputs[0].dims);
    const auto column_bytes = static_cast<int64_t>(layout.column_bytes());
    const int64_t affordable =
        kStageBytes / (kMostStagedVectors * layout.groups * column_bytes) - reach(p.window);
    p.pixels = std::max(kLeastPixels, affordable / p.window.stride[2] + 1);
    p.columns = (p.pixels - 1) * p.window.stride[2] + reach(p.window);
    const PixelMemory memory{
        .element = sizeof(int32_t),
        .shared = layout.sums_bytes() + (packed_ ? 0 : layout.bytes()),
        .per_run = static_cast<size_t>(kMostStagedVectors * layout.groups * p.columns) *
                   layout.column_bytes(),
        .channel_grain = kMostStagedVectors * layout.lanes,
        .repeats = outputs[0].dims[1] / op_.groups,
        .finishes = loops_.finishes};
    p.runs = PixelRuns(inputs, outputs, memory, epilogue_, threads, p.workspace_bytes);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedInt8Depthwise&>(*args.prepared);
    if (p.runs.empty()) return;
    const PackedDepthwise layout(loops_, args.inputs[1].dims);
    std::byte* const shared = p.runs.shared(args);
    Weights weights{layout, reinterpret_cast<const int32_t*>(shared)};
    if (packed_) {
      weights.packed = packed_->bytes().data();
    } else {
      std::byte* const to = shared + layout.sums_bytes();
      layout.pack({args.inputs[1], zero_point(args.inputs, 3)}, to);
      weights.packed = to;
    }
    weights.x_zero = load_zero_point(zero_point(args.inputs, 2));
    start_sums(weights, reinterpret_cast<int32_t*>(shared));
    p.runs.launch(args, load_, epilogue_, [&](const PixelRun& run) { compute(p, weights, run); });
  }

 private:
  struct Weights {
    const PackedDepthwise& layout;
    const int32_t* initial;  // of the sums, per lane
    const std::byte* packed = nullptr;
    int32_t x_zero = 0;
  };
  bool has_bytes() const { return loops_.rows_of_lane == 4; }
  static int64_t reach(const Window& window) {
    return (window.kernel[2] - 1) * window.dilation[2] + 1;
  }
  TensorView zero_point(std::span<const TensorView> inputs, size_t i) const {
    return i < op_inputs_ ? inputs[i] : TensorView{};
  }

  // Bytes of x still have their zero point on, and are moved by 128 if they are signed.
  int32_t staged_zero(int32_t zero, DataType x) const {
    return has_bytes() ? zero + moved_by(x) : 0;
  }
  void start_sums(const Weights& weights, int32_t* initial) const {
    const PackedDepthwise& layout = weights.layout;
    const auto* sums = reinterpret_cast<const int32_t*>(weights.packed + layout.sums_at());
    const int32_t zero = staged_zero(weights.x_zero, x_);
    for (int64_t i = 0; i < layout.vectors * layout.lanes; ++i) initial[i] = -zero * sums[i];
    for (int64_t i = 0; i < layout.vectors * layout.lanes && !offsets_.empty(); ++i) {
      const int64_t channel = layout.first_channel(i / layout.lanes) + i % layout.lanes;
      initial[i] = wrapping_sum(initial[i], offsets_[static_cast<size_t>(channel)]);
    }
  }

  // The rows of taps of one output row, followed by the rows that complete the last group.
  struct TapRows {
    std::array<const std::byte*, PixelTaps::kMostRows + kMostRowsOfLane> starts;  // null: padding
    alignas(64) std::array<std::byte, kMostStagedVectors * kMostLanes> padding;
    int32_t padded_lane = 0;
  };
  TapRows rows_of(const PreparedInt8Depthwise& p, const Weights& weights,
                  const PixelRun& run) const {
    PixelTaps taps;
    taps.enter_row(p.window, p.runs.x(), run.x, run.row);
    TapRows rows;
    const int64_t count = weights.layout.groups * weights.layout.rows_of_lane;
    std::fill_n(rows.starts.begin(), count, nullptr);
    for (size_t i = 0; i < static_cast<size_t>(taps.rows); ++i)
      rows.starts[static_cast<size_t>(taps.kernel_rows[i])] = taps.image + taps.row_offsets[i];
    rows.padding.fill(static_cast<std::byte>(weights.x_zero));
    if (has_bytes())
      std::memset(&rows.padded_lane, staged_zero(weights.x_zero, x_), sizeof(rows.padded_lane));
    return rows;
  }

  // Pixels of a run that are computed at one time, and the columns of input that they meet.
  struct Part {
    int64_t first = 0, pixels = 0;
    int64_t x0 = 0, before = 0, inside = 0,
            after = 0;  // columns: the first one's place, padding, and input
  };
  static Part part_of(const PreparedInt8Depthwise& p, const PixelRun& run, int64_t first) {
    const Window& window = p.window;
    Part part{.first = first, .pixels = std::min(p.pixels, run.count - first)};
    part.x0 = (run.first + first) * window.stride[2] - window.pad[2];
    const int64_t columns = (part.pixels - 1) * window.stride[2] + reach(window);
    part.before = std::clamp<int64_t>(-part.x0, 0, columns);
    part.inside = std::clamp(p.runs.x().size[2] - part.x0, part.before, columns) - part.before;
    part.after = columns - part.before - part.inside;
    return part;
  }

  void compute(const PreparedInt8Depthwise& p, const Weights& weights, const PixelRun& run) const {
    const PackedDepthwise& layout = weights.layout;
    const TapRows rows = rows_of(p, weights, run);
    const int64_t end = run.channel + run.channels;
    const auto group_stride = p.columns * static_cast<int64_t>(layout.column_bytes());
    for (int64_t first = 0; first < run.count; first += p.pixels) {
      const Part part = part_of(p, run, first);
      for (int64_t vector = run.channel / layout.lanes; vector * layout.lanes < end;) {
        const int64_t vectors =
            (vector + kMostStagedVectors) * layout.lanes <= end ? kMostStagedVectors : 1;
        stage(p, weights, rows, run, part, layout.first_channel(vector), vectors);
        for (int64_t v = 0; v < vectors; ++v, ++vector) {
          loops_.run(
              {.x = run.extra + v * layout.groups * group_stride,
               .group_stride = group_stride,
               .weights = weights.packed + static_cast<size_t>(vector) * layout.vector_bytes(),
               .initial = weights.initial + vector * layout.lanes,
               .groups = layout.groups,
               .kernel_columns = layout.columns,
               .stride = p.window.stride[2],
               .dilation = p.window.dilation[2],
               .pixels = part.pixels,
               .out = reinterpret_cast<int32_t*>(run.out) + first * run.channels +
                      layout.first_channel(vector) - run.channel,
               .out_step = run.channels,
               .finish = run.finish,
               .finish_row = first,
               .finish_column = layout.first_channel(vector) - run.channel});
        }
      }
    }
  }

  // Columns of some vectors of channels, of all rows of taps; what is padding holds zero points.
  void stage(const PreparedInt8Depthwise& p, const Weights& weights, const TapRows& rows,
             const PixelRun& run, const Part& part, int64_t channel, int64_t vectors) const {
    const PackedDepthwise& layout = weights.layout;
    const ChannelsLast& x = p.runs.x();
    const auto group_stride = p.columns * static_cast<int64_t>(layout.column_bytes());
    const int64_t offset = (part.x0 + part.before) * x.strides[2] + channel;
    DepthwiseStage stage{.dtype = x_,
                         .zero = has_bytes() ? 0 : weights.x_zero,
                         .before = part.before,
                         .columns = part.inside,
                         .after = part.after,
                         .padded_lane = rows.padded_lane,
                         .vectors = vectors,
                         .vector_stride = layout.groups * group_stride};
    for (int64_t group = 0; group < layout.groups; ++group) {
      const auto first_row = static_cast<size_t>(group * layout.rows_of_lane);
      for (size_t i = 0; i < static_cast<size_t>(layout.rows_of_lane); ++i) {
        const std::byte* const start = rows.starts[first_row + i];
        stage.rows[i] = start == nullptr ? rows.padding.data() : start + offset;
        stage.steps[i] = start == nullptr ? 0 : x.strides[2];
      }
      stage.to = run.extra + group * group_stride;
      loops_.stage(stage);
    }
  }

  Conv op_;
  size_t op_inputs_;
  DataType x_;
  DepthwiseInt8 loops_;
  LoadBlock load_;
  std::vector<int32_t> offsets_;  // that sums of channels start at; empty: 0
  Epilogue epilogue_;
  std::optional<Tensor> packed_;
};

// The widest loops that this many channels fill.
DepthwiseInt8 loops_for(Isa isa, int64_t channels, const Differences* weights) {
  if (isa == Isa::kFull && weights != nullptr && weights->fit_bytes()) {
    const DepthwiseInt8 loops = depthwise_vnni();
    if (loops.lanes <= channels) return loops;
  }
  for (const Isa each : {Isa::kAvx512, Isa::kAvx2}) {
    const DepthwiseInt8 loops = depthwise_i16(each);
    if (each <= isa && loops.lanes <= channels) return loops;
  }
  return depthwise_i16(Isa::kBaseline);
}

KernelResult make_depthwise_int8(const Conv& op, const Request& request) {
  const Operand& w = request.inputs[1];
  const Shape& shape = w.type.shape;
  if (!is_8bit(request.inputs[0].type.dtype) || !is_8bit(w.type.dtype))
    return refuse("only 8-bit operands");
  if (shape.rank() < 3 || shape.rank() > 5) return refuse("only one to three spatial axes");
  int64_t rows = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!shape[axis].known()) return refuse("weights of unknown size");
    if (axis >= 2 && axis + 1 < shape.rank()) rows *= shape[axis].value();
  }
  const int64_t channels = shape[0].value();
  if (shape[1].value() != 1) return refuse("groups of several input channels");
  if (channels != op.groups && op.groups < 2) return refuse("a single group");
  if (channels > kMostRepeats * op.groups) return refuse("groups of many output channels");
  if (rows > PixelTaps::kMostRows) return refuse("more than 64 rows of taps");
  if (shape[shape.rank() - 1].value() > kMostColumns) return refuse("windows of many columns");

  std::optional<Differences> weights;
  const bool has_zero = request.op_input_count > 3 && request.inputs[3].present;
  if (w.constant != nullptr && (!has_zero || request.inputs[3].constant != nullptr))
    weights.emplace(kernel_view(*w.constant),
                    has_zero ? kernel_view(*request.inputs[3].constant) : TensorView{});
  const DepthwiseInt8 loops =
      loops_for(isa_of(request.device), channels, weights ? &*weights : nullptr);
  if (loops.lanes > channels) return refuse("fewer channels than the lanes of a vector");
  const StartOffsets offsets(request);
  auto epilogue = Epilogue::make(offsets.rest(request), DataType::kI32);
  if (!epilogue) return refuse(epilogue.reason());
  auto kernel = std::make_unique<Int8DepthwiseConv>(
      op, loops, request, offsets.of_channels(channels), std::move(*epilogue));
  if (weights) kernel->pack(request, *weights, w.constant->dims());
  return kernel;
}

constexpr KernelEntry kDepthwiseInt8Entries[] = {
    entry<Conv, make_depthwise_int8>("cpu.conv.depthwise_int8", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> int8_depthwise_entries() { return kDepthwiseInt8Entries; }

}  // namespace anneal::cpu
