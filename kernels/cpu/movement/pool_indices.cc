// Maxima of windows with their places, plane by plane: "cpu.pool.indices".
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "anneal/core/integer.h"
#include "anneal/core/parallel.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/conv/window.h"

namespace anneal::cpu {
namespace {

// The taps of a window along one axis that lie in x: positions `first`, `first` + dilation and so
// on.
struct AxisWindow {
  int64_t first = 0, count = 0;
};

struct PreparedPoolIndices final : PreparedKernel {
  std::array<std::vector<AxisWindow>, 3> windows;  // of each output position
  Spatial dilation{}, x_steps{}, index_steps{}, y_steps{}, place_steps{};
  int64_t plane = 0;  // elements of x
  int64_t count(size_t axis) const { return std::ssize(windows[axis]); }
};

// Where the plane begins, counted in elements.
int64_t plane_offset(const TensorView& view, int64_t plane) {
  return plane / view.dims[1] * view.strides[0] + plane % view.dims[1] * view.strides[1];
}

class PoolIndices final : public Kernel {
 public:
  explicit PoolIndices(const Pool& op) : op_(op) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    const TensorView &x = inputs[0], &y = outputs[0], &places = outputs[1];
    auto made = std::make_unique<PreparedPoolIndices>();
    PreparedPoolIndices& p = *made;
    const int axes = x.dims.rank() - 2;
    const Window window(op_, op_.kernel, 0, y.dims);
    const Spatial size = spatial_of(x.dims, 2, axes, 1);
    p.dilation = window.dilation;
    p.x_steps = spatial_of(x.strides, 2, axes, 0);
    p.y_steps = spatial_of(y.strides, 2, axes, 0);
    p.place_steps = spatial_of(places.strides, 2, axes, 0);
    p.plane = size[0] * size[1] * size[2];
    p.index_steps = op_.column_major_indices ? Spatial{1, size[0], size[0] * size[1]}
                                             : Spatial{size[1] * size[2], size[2], 1};
    for (size_t axis = 0; axis < 3; ++axis)
      for (int64_t at = 0; at < window.out[axis]; ++at) {
        const int64_t begin = at * window.stride[axis] - window.pad[axis];
        const int64_t step = window.dilation[axis];
        const int64_t first = begin < 0 ? ceil_div(-begin, step) : 0;
        const int64_t end = begin < size[axis]
                                ? std::min(window.kernel[axis], ceil_div(size[axis] - begin, step))
                                : 0;
        p.windows[axis].push_back(first < end ? AxisWindow{begin + first * step, end - first}
                                              : AxisWindow{});
      }
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedPoolIndices&>(*args.prepared);
    const TensorView &x = args.inputs[0], &y = args.outputs[0], &places = args.outputs[1];
    constexpr int64_t kWindowsAtOnce = 1024;
    const int64_t rows = p.count(0) * p.count(1), columns = p.count(2);
    if (rows * columns == 0) return;
    args.team.for_ranges(
        x.dims[0] * x.dims[1] * rows, 1 + kWindowsAtOnce / columns,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t plane = i / rows, z = i % rows / p.count(1), row = i % p.count(1);
            const auto at = [&](const TensorView& view, const Spatial& steps) {
              return plane_offset(view, plane) + z * steps[0] + row * steps[1];
            };
            pool_row(
                p, {p.windows[0][static_cast<size_t>(z)], p.windows[1][static_cast<size_t>(row)]},
                x.as<const float>() + plane_offset(x, plane), plane * p.plane,
                y.as<float>() + at(y, p.y_steps), places.as<int64_t>() + at(places, p.place_steps));
          }
        });
  }

 private:
  // first: the index of the plane's first element.
  static void pool_row(const PreparedPoolIndices& p, const std::array<AxisWindow, 2>& rows,
                       const float* x, int64_t first, float* y, int64_t* places) {
    for (const AxisWindow& columns : p.windows[2]) {
      const Spatial begin{rows[0].first, rows[1].first, columns.first};
      const bool is_empty = rows[0].count == 0 || rows[1].count == 0 || columns.count == 0;
      int64_t start = 0, start_index = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        start += begin[axis] * p.x_steps[axis];
        start_index += begin[axis] * p.index_steps[axis];
      }
      // The first one stays where none is larger; a NaN is larger than numbers.
      float best = is_empty ? -std::numeric_limits<float>::infinity() : x[start];
      int64_t place = start_index;
      for (int64_t kz = 0; kz < rows[0].count; ++kz)
        for (int64_t ky = 0; ky < rows[1].count; ++ky) {
          const int64_t down = kz * p.dilation[0], along = ky * p.dilation[1];
          const float* from = x + start + down * p.x_steps[0] + along * p.x_steps[1];
          int64_t index = start_index + down * p.index_steps[0] + along * p.index_steps[1];
          for (int64_t kx = 0; kx < columns.count; ++kx) {
            const float value = *from;
            const bool is_larger = value > best || (value != value && best == best);
            best = is_larger ? value : best;
            place = is_larger ? index : place;
            from += p.dilation[2] * p.x_steps[2];
            index += p.dilation[2] * p.index_steps[2];
          }
        }
      *y = best;
      *places = is_empty ? 0 : first + place;
      y += p.y_steps[2];
      places += p.place_steps[2];
    }
  }

  Pool op_;
};

KernelResult make_pool_indices(const Pool& op, const Request& request) {
  if (!op.with_indices) return refuse("no indices");
  if (request.inputs[0].type.dtype != DataType::kF32 ||
      request.outputs[0].type.dtype != DataType::kF32)
    return refuse("only f32");
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue");
  return std::make_unique<PoolIndices>(op);
}

constexpr KernelEntry kPoolIndicesEntries[] = {
    entry<Pool, make_pool_indices>("cpu.pool.indices"),
};

}  // namespace

std::span<const KernelEntry> pool_indices_entries() { return kPoolIndicesEntries; }

}  // namespace anneal::cpu
