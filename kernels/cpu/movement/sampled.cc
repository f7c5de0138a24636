// Positions that are weighted sums of pixels with channels beside each other: "cpu.roi_align.nhwc",
// "cpu.grid_sample.nhwc".
#include <array>
#include <cstring>
#include <span>

#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/channels_last.h"
#include "anneal/kernels/cpu/movement/blend.h"
#include "anneal/kernels/cpu/reference/grid_taps.h"
#include "anneal/kernels/cpu/reference/roi_samples.h"

namespace anneal::cpu {
namespace {

struct PreparedSamples final : PreparedKernel {
  ChannelsLast x;
  Walk<2> positions{{}, {}};  // of a grid: offsets in it and in y
  size_t parts_at = 0, part_bytes = 0;
};

// What the two kernels have in common: x with channels beside each other, and a thread's memory for
// some positions of y.
class Sampled : public Kernel {
 public:
  explicit Sampled(const Request& request)
      : blend_(blend_of(isa_of(request.device))), load_(load_block(isa_of(request.device))) {}

 protected:
  static std::unique_ptr<PreparedSamples> prepared(const TensorView& x, int64_t positions,
                                                   int threads) {
    auto made = std::make_unique<PreparedSamples>();
    made->x = ChannelsLast(x);
    made->parts_at = made->x.staged_bytes();
    made->part_bytes = cache_aligned(static_cast<size_t>(positions * x.dims[1]) * 4);
    made->workspace_bytes = made->parts_at + made->part_bytes * static_cast<size_t>(threads);
    return made;
  }
  // The first pixel of x.
  const float* pixels(const PreparedSamples& p, const LaunchArgs& args) const {
    if (!p.x.staged) return args.inputs[0].as<const float>();
    p.x.stage(args.inputs[0], args.workspace, load_, args.team);
    return reinterpret_cast<const float*>(args.workspace);
  }
  static float* memory_of(const PreparedSamples& p, const LaunchArgs& args) {
    return reinterpret_cast<float*>(part_of(args.team, args.workspace + p.parts_at, p.part_bytes));
  }
  // `count` positions, `step` apart in y, of which the first is at `to`.
  static void store(const float* from, int64_t channels, int64_t count, float* to,
                    int64_t channel_stride, int64_t step) {
    for (int64_t i = 0; channel_stride == 1 && i < count; ++i)
      std::memcpy(to + i * step, from + i * channels, static_cast<size_t>(channels) * 4);
    for (int64_t channel = 0; channel_stride != 1 && channel < channels; ++channel)
      for (int64_t i = 0; i < count; ++i)
        to[channel * channel_stride + i * step] = from[i * channels + channel];
  }

  Blend blend_;

 private:
  LoadBlock load_;
};

class NhwcRoiAlign final : public Sampled {
 public:
  NhwcRoiAlign(const RoiAlign& op, const Request& request) : Sampled(request), op_(op) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView>, int threads) const override {
    return prepared(inputs[0], op_.width, threads);
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedSamples&>(*args.prepared);
    const TensorView &x = args.inputs[0], &y = args.outputs[0];
    if (count(y.dims) == 0) return;
    if (count(x.dims) == 0)
      fail(ErrorCode::kInvalidArgument, "an empty image has nothing to sample");
    const float* const image = pixels(p, args);
    args.team.for_ranges(y.dims[0] * op_.height, 1, [&](int64_t begin, int64_t end) {
      float* const bins = memory_of(p, args);
      for (int64_t item = begin; item < end; ++item) {
        const int64_t region = item / op_.height, row = item % op_.height;
        fill_row(p, args, image, region, row, bins);
        store(bins, p.x.channels, op_.width,
              y.as<float>() + region * y.strides[0] + row * y.strides[2], y.strides[1],
              y.strides[3]);
      }
    });
  }

 private:
  // A row of bins of a region.
  void fill_row(const PreparedSamples& p, const LaunchArgs& args, const float* image,
                int64_t region, int64_t row, float* bins) const {
    const TensorView& regions = args.inputs[1];
    const auto corner = [&](int64_t i) {
      return regions.as<const float>()[region * regions.strides[0] + i * regions.strides[1]];
    };
    image += image_of_region(args.inputs[2], region, p.x.images) * p.x.image_stride;
    const auto columns = samples_of<float>(op_, corner(0), corner(2), op_.width, p.x.size[2]);
    const auto rows = samples_of<float>(op_, corner(1), corner(3), op_.height, p.x.size[1]);
    for (int64_t column = 0; column < op_.width; ++column)
      average(p, image, rows, row, columns, column, bins + column * p.x.channels);
  }

  void average(const PreparedSamples& p, const float* image, const Samples<float>& rows,
               int64_t row, const Samples<float>& columns, int64_t column, float* bin) const {
    const double share = 1 / std::max(rows.count * columns.count, 1.0);
    const auto [row_begin, row_end] = rows.inside(row);
    const auto [column_begin, column_end] = columns.inside(column);
    BlendSum sum(blend_, p.x.channels, bin);
    SamplePlace r, c;
    for (int64_t i = row_begin; i < row_end; ++i) {
      if (!rows.place(row, i, r)) continue;
      for (int64_t j = column_begin; j < column_end; ++j) {
        if (!columns.place(column, j, c)) continue;
        const auto add = [&](int64_t h, double of_h, int64_t w, double of_w) {
          sum.add(image + h * p.x.strides[1] + w * p.x.strides[2],
                  static_cast<float>(of_h * of_w * share));
        };
        add(r.low, r.of_low, c.low, c.of_low);
        add(r.low, r.of_low, c.high, c.of_high);
        add(r.high, r.of_high, c.low, c.of_low);
        add(r.high, r.of_high, c.high, c.of_high);
      }
    }
    sum.finish();
  }

  RoiAlign op_;
};

class NhwcGridSample final : public Sampled {
 public:
  NhwcGridSample(const GridSample& op, const Request& request) : Sampled(request), op_(op) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = prepared(inputs[0], kPositions, threads);
    const TensorView &grid = inputs[1], &y = outputs[0];
    const int axes = grid.dims.rank() - 1;
    Dims to = y.strides;  // of a position, without channels
    for (int axis = 1; axis < axes; ++axis) to[axis] = y.strides[axis + 1];
    made->positions =
        Walk<2>(part(grid.dims, 0, axes), {part(grid.strides, 0, axes), part(to, 0, axes)});
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedSamples&>(*args.prepared);
    const TensorView& y = args.outputs[0];
    if (count(y.dims) == 0) return;
    if (count(args.inputs[0].dims) == 0)
      fail(ErrorCode::kInvalidArgument, "an empty tensor has nothing to sample");
    const float* const x = pixels(p, args);
    const int64_t of_image = p.positions.count() / p.x.images;
    args.team.for_ranges(p.positions.count(), kPositions, [&](int64_t begin, int64_t end) {
      float* const sums = memory_of(p, args);
      int64_t position = begin;
      p.positions.for_runs(begin, end, [&](const auto& at, int64_t length) {
        for (int64_t i = 0; i < length;) {
          const int64_t n = std::min(length - i, kPositions);
          for (int64_t k = 0; k < n; ++k, ++position)
            sample(p, args, x + position / of_image * p.x.image_stride,
                   at[0] + (i + k) * p.positions.step(0), sums + k * p.x.channels);
          const int64_t step = p.positions.step(1);
          store(sums, p.x.channels, n, y.as<float>() + at[1] + i * step, y.strides[1], step);
          i += n;
        }
      });
    });
  }

 private:
  static constexpr int64_t kPositions = 16;  // summed up before they are stored

  void sample(const PreparedSamples& p, const LaunchArgs& args, const float* image, int64_t at,
              float* sums) const {
    const TensorView& grid = args.inputs[1];
    const auto axes = static_cast<size_t>(grid.dims.rank() - 2);
    const int64_t step = grid.strides[grid.dims.rank() - 1];
    std::array<GridAxisTaps, 3> of_axes;
    for (size_t axis = 0; axis < axes; ++axis) {
      const int64_t coordinate = at + static_cast<int64_t>(axes - 1 - axis) * step;
      GridSampler<float>(op_, p.x.size[3 - axes + axis])
          .find_taps(grid.as<const float>()[coordinate], of_axes[axis]);
    }
    const auto of_image = std::span(of_axes).first(axes);
    const auto strides = std::span(p.x.strides).last(axes);
    if (p.x.channels <= FewChannelsSum::kMost) {
      add_taps(of_image, strides, image, FewChannelsSum(p.x.channels, sums));
    } else {
      add_taps(of_image, strides, image, BlendSum(blend_, p.x.channels, sums));
    }
  }

  template <class Sum>
  static void add_taps(std::span<const GridAxisTaps> axes, std::span<const int64_t> strides,
                       const float* image, Sum&& sum) {
    if (axes.size() == 2) {
      const GridAxisTaps &of_h = axes[0], &of_w = axes[1];
      for (size_t w = 0; w < static_cast<size_t>(of_w.count); ++w) {
        for (size_t h = 0; h < static_cast<size_t>(of_h.count); ++h) {
          const double weight = of_h.weight[h] * of_w.weight[w];
          if (of_h.position[h] < 0 || of_w.position[w] < 0 || weight == 0) continue;
          sum.add(image + of_h.position[h] * strides[0] + of_w.position[w] * strides[1],
                  static_cast<float>(weight));
        }
      }
      return sum.finish();
    }
    GridTaps taps;
    combine_taps(axes, strides, taps);
    for (size_t i = 0; i < static_cast<size_t>(taps.count); ++i)
      if (taps.weight[i] != 0)  // else the tap may lie outside
        sum.add(image + taps.offset[i], static_cast<float>(taps.weight[i]));
    sum.finish();
  }

  GridSample op_;
};

std::string why_not_sampled(const Request& request) {
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) return "an epilogue";
  for (const size_t i : {0, 1})
    if (request.inputs[i].type.dtype != DataType::kF32) return "only f32";
  return {};
}

KernelResult make_roi_align(const RoiAlign& op, const Request& request) {
  if (std::string why = why_not_sampled(request); !why.empty()) return refuse(std::move(why));
  if (op.kind != PoolKind::kAverage) return refuse("only averages");
  return std::make_unique<NhwcRoiAlign>(op, request);
}

KernelResult make_grid_sample(const GridSample& op, const Request& request) {
  if (std::string why = why_not_sampled(request); !why.empty()) return refuse(std::move(why));
  const int axes = request.inputs[0].type.shape.rank() - 2;
  if (axes < 1 || axes > 3) return refuse("only one to three spatial axes");
  return std::make_unique<NhwcGridSample>(op, request);
}

constexpr KernelEntry kSampledEntries[] = {
    entry<RoiAlign, make_roi_align>("cpu.roi_align.nhwc", Layout::kChannelsLast),
    entry<GridSample, make_grid_sample>("cpu.grid_sample.nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> nhwc_sampled_entries() { return kSampledEntries; }

}  // namespace anneal::cpu
