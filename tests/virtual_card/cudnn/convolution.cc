// Convolutions of the fake cuDNN as products of filters and patches.
#include <algorithm>
#include <array>

#include "anneal/tests/virtual_card/cudnn/execute.h"

namespace anneal::fake_cudnn {
namespace {

// A convolution of three spatial dimensions; fewer get dimensions of 1 in front.
struct Geometry {
  using Three = std::array<int64_t, 3>;
  int64_t batch = 1, groups = 1, channels = 1, filters = 1;  // channels and filters of a group
  Three x = {1, 1, 1}, w = {1, 1, 1}, y = {1, 1, 1};
  Three strides = {1, 1, 1}, dilations = {1, 1, 1}, pads = {0, 0, 0};

  Geometry(const Operation& o, const Tensor& of_x, const Tensor& of_w, const Tensor& of_y)
      : batch(of_x.dims[0]), groups(of_x.dims[1] / of_w.dims[1]), channels(of_w.dims[1]) {
    filters = of_w.dims[0] / groups;
    const size_t spatial = o.strides.size();
    for (size_t i = 0; i < spatial; ++i) {
      const size_t to = 3 - spatial + i;
      x[to] = of_x.dims[i + 2], w[to] = of_w.dims[i + 2], y[to] = of_y.dims[i + 2];
      strides[to] = o.strides[i], dilations[to] = o.dilations[i], pads[to] = o.pre[i];
    }
  }
  static int64_t product(const Three& of) { return of[0] * of[1] * of[2]; }
  int64_t depth() const { return channels * product(w); }  // of a patch

  // Calls with the row and the column of a patch's matrix, and the index in a group's channels of
  // x, for each element that is in x. Columns are places of y from `first` on.
  template <class Function>
  void for_each_in_patches(int64_t first, int64_t columns, const Function& function) const {
    for (int64_t row = 0; row < depth(); ++row) {
      const int64_t w2 = row % w[2], w1 = row / w[2] % w[1], w0 = row / (w[2] * w[1]) % w[0],
                    channel = row / product(w);
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t place = first + column;
        const int64_t x2 = place % y[2] * strides[2] + w2 * dilations[2] - pads[2];
        const int64_t x1 = place / y[2] % y[1] * strides[1] + w1 * dilations[1] - pads[1];
        const int64_t x0 = place / (y[2] * y[1]) * strides[0] + w0 * dilations[0] - pads[0];
        if (x0 < 0 || x0 >= x[0] || x1 < 0 || x1 >= x[1] || x2 < 0 || x2 >= x[2]) continue;
        function(row, column, ((channel * x[0] + x0) * x[1] + x1) * x[2] + x2);
      }
    }
  }
};

constexpr int64_t kColumns = 1024;  // of patches at once

size_t unsigned_of(int64_t value) { return static_cast<size_t>(value); }

}  // namespace

Elements convolution(const Operation& o, const Tensor& x, const Tensor& w, const Tensor& y,
                     const Elements& from, const Elements& filters) {
  const Geometry g(o, x, w, y);
  const int64_t places = Geometry::product(g.y), of_group = g.channels * Geometry::product(g.x);
  Elements result(unsigned_of(y.count()), 0);
  Elements patches, sums;
  for (int64_t i = 0; i < g.batch * g.groups; ++i)
    for (int64_t first = 0; first < places; first += kColumns) {
      const int64_t columns = std::min(kColumns, places - first);
      patches.assign(unsigned_of(g.depth() * columns), 0);
      g.for_each_in_patches(first, columns, [&](int64_t row, int64_t column, int64_t at) {
        patches[unsigned_of(row * columns + column)] = from[unsigned_of(i * of_group + at)];
      });
      sums.assign(unsigned_of(g.filters * columns), 0);
      add_product(unsigned_of(g.filters), unsigned_of(columns), unsigned_of(g.depth()),
                  filters.data() + i % g.groups * g.filters * g.depth(), patches.data(),
                  sums.data());
      for (int64_t filter = 0; filter < g.filters; ++filter)
        std::copy_n(sums.data() + filter * columns, columns,
                    result.data() + (i * g.filters + filter) * places + first);
    }
  return result;
}

Elements transposed_convolution(const Operation& o, const Tensor& x, const Tensor& w,
                                const Tensor& y, const Elements& from, const Elements& filters) {
  const Geometry g(o, x, w, y);
  const int64_t places = Geometry::product(g.y), of_group = g.channels * Geometry::product(g.x);
  Elements result(unsigned_of(x.count()), 0);
  // A group's filters with rows and columns exchanged.
  Elements turned(unsigned_of(g.depth() * g.filters)), part, patches;
  for (int64_t i = 0; i < g.batch * g.groups; ++i) {
    const double* const of_filters = filters.data() + i % g.groups * g.filters * g.depth();
    for (int64_t filter = 0; filter < g.filters; ++filter)
      for (int64_t row = 0; row < g.depth(); ++row)
        turned[unsigned_of(row * g.filters + filter)] = of_filters[filter * g.depth() + row];
    for (int64_t first = 0; first < places; first += kColumns) {
      const int64_t columns = std::min(kColumns, places - first);
      part.resize(unsigned_of(g.filters * columns));
      for (int64_t filter = 0; filter < g.filters; ++filter)
        std::copy_n(from.data() + (i * g.filters + filter) * places + first, columns,
                    part.data() + filter * columns);
      patches.assign(unsigned_of(g.depth() * columns), 0);
      add_product(unsigned_of(g.depth()), unsigned_of(columns), unsigned_of(g.filters),
                  turned.data(), part.data(), patches.data());
      g.for_each_in_patches(first, columns, [&](int64_t row, int64_t column, int64_t at) {
        result[unsigned_of(i * of_group + at)] += patches[unsigned_of(row * columns + column)];
      });
    }
  }
  return result;
}

}  // namespace anneal::fake_cudnn
