// GridSample (grid_taps.h).
#include <array>
#include <span>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/grid_taps.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

void grid_sample(const GridSample& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &grid = args.inputs[1], &y = args.results[0];
  const int spatial = x.dims.rank() - 2;
  if (count(y.dims) == 0) return;
  if (count(x.dims) == 0)
    fail(ErrorCode::kInvalidArgument, "an empty tensor has nothing to sample");
  const Dims positions = part(grid.dims, 0, spatial + 1);
  Dims to = y.strides;  // of a position, without channels
  for (int axis = 1; axis <= spatial; ++axis) to[axis] = y.strides[axis + 1];
  to = part(to, 0, spatial + 1);
  const Walk<2> walk(positions, {part(grid.strides, 0, spatial + 1), to});
  const int64_t inner = count(positions) / positions[0], step = grid.strides[spatial + 1];
  const auto strides = x.strides.span().subspan(2);
  const int64_t channels = x.dims[1];
  visit_float(grid.dtype, [&]<class G>(G) {
    using Coordinate = typename G::Acc;
    visit_float(x.dtype, [&]<class E>(E) {
      const ResultElements<typename E::Acc> out(y);
      args.team.for_ranges(
          walk.count(), kGrain / 16 / channels + 1, [&](int64_t begin, int64_t end) {
            GridTaps taps;
            std::array<GridAxisTaps, kMaxSpatial> axes;
            int64_t position = begin;
            walk.for_elements(begin, end, [&](const auto& at) {
              for (int axis = 0; axis < spatial; ++axis)
                GridSampler<Coordinate>(op, x.dims[axis + 2])
                    .find_taps(G::load(grid.data, at[0] + (spatial - 1 - axis) * step),
                               axes[static_cast<size_t>(axis)]);
              combine_taps(std::span(axes).first(static_cast<size_t>(spatial)), strides, taps);
              const int64_t image = position++ / inner * x.strides[0];
              for (int64_t channel = 0; channel < channels; ++channel) {
                const int64_t from = image + channel * x.strides[1];
                double sum = 0;
                for (size_t i = 0; i < static_cast<size_t>(taps.count); ++i)
                  if (taps.weight[i] != 0)
                    sum += taps.weight[i] * double(E::load(x.data, from + taps.offset[i]));
                out.put(at[1] + channel * y.strides[1], static_cast<typename E::Acc>(sum));
              }
            });
          });
    });
  });
}

constexpr KernelEntry kGridSampleEntries[] = {
    reference<GridSample, grid_sample>("cpu.grid_sample.reference")};

}  // namespace

std::span<const KernelEntry> reference_grid_sample_entries() { return kGridSampleEntries; }

}  // namespace anneal::cpu
