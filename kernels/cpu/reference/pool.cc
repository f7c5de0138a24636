// Pool, one window per output element. A maximum of a window that has a NaN is NaN; a window that
// lies wholly in the padding has the lowest value as its maximum, and 0 as its average.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// The elements of x under the kernel at one output position of one channel.
class Window {
 public:
  Window(const Pool& op, const TensorView& x) : op_(op), x_(x), spatial_(x.dims.rank() - 2) {
    int64_t step = 1;
    for (int axis = 0; axis < spatial_; ++axis) {
      const int a = op.column_major_indices ? axis : spatial_ - 1 - axis;
      index_steps_[a] = step;
      step *= x.dims[2 + a];
    }
    channel_size_ = step;
  }

  // f(offset in x, flat index) for each element that is not padding.
  template <class F>
  void visit(const Dims& at, F f) const {
    visit(at, 0, at[0] * x_.strides[0] + at[1] * x_.strides[1],
          (at[0] * x_.dims[1] + at[1]) * channel_size_, f);
  }

  // Elements of the kernel that lie in x or, with count_include_pad, in its padding; those beyond,
  // which ceil_mode brings, never count.
  int64_t divisor(const Dims& at) const {
    int64_t product = 1;
    for (int axis = 0; axis < spatial_; ++axis) {
      const int64_t before = op_.count_include_pad ? op_.pads_begin[axis] : 0;
      const int64_t after = op_.count_include_pad ? op_.pads_end[axis] : 0;
      int64_t inside = 0;
      for (int64_t k = 0; k < op_.kernel[axis]; ++k) {
        const int64_t position = this->position(at, axis, k);
        inside += position >= -before && position < x_.dims[2 + axis] + after ? 1 : 0;
      }
      product *= inside;
    }
    return product;
  }

 private:
  int64_t position(const Dims& at, int axis, int64_t k) const {
    return at[2 + axis] * op_.strides[axis] - op_.pads_begin[axis] + k * op_.dilations[axis];
  }

  template <class F>
  void visit(const Dims& at, int axis, int64_t offset, int64_t index, F& f) const {
    if (axis == spatial_) {
      f(offset, index);
      return;
    }
    for (int64_t k = 0; k < op_.kernel[axis]; ++k) {
      const int64_t position = this->position(at, axis, k);
      if (position < 0 || position >= x_.dims[2 + axis]) continue;
      visit(at, axis + 1, offset + position * x_.strides[2 + axis],
            index + position * index_steps_[axis], f);
    }
  }

  const Pool& op_;
  const TensorView& x_;
  int spatial_;
  int64_t channel_size_ = 1;
  std::array<int64_t, kMaxRank> index_steps_{};
};

template <class T>
constexpr T lowest() {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

template <class E>
void maximum(const TensorView& x, const Window& window, const Dims& at, const ReferenceArgs& args) {
  using Acc = typename E::Acc;
  Acc best = lowest<Acc>();
  int64_t best_index = -1;
  window.visit(at, [&](int64_t offset, int64_t index) {
    const Acc value = E::load(x.data, offset);
    if (best_index >= 0 && !(value > best) && !(is_nan(value) && !is_nan(best))) return;
    best = value;
    best_index = index;
  });
  const TensorView& y = args.results[0];
  ResultElements<Acc>(y).put(dot(at, y.strides), best);
  if (args.results.size() > 1) {
    const TensorView& indices = args.results[1];
    indices.as<int64_t>()[dot(at, indices.strides)] = std::max<int64_t>(best_index, 0);
  }
}

// Averages and p-norms, in f64.
template <class E>
double mean_or_norm(const Pool& op, const TensorView& x, const Window& window, const Dims& at) {
  double sum = 0;
  if (op.kind == PoolKind::kAverage) {
    window.visit(at, [&](int64_t offset, int64_t) { sum += double(E::load(x.data, offset)); });
    const int64_t divisor = window.divisor(at);
    return divisor > 0 ? sum / static_cast<double>(divisor) : 0;
  }
  const auto p = static_cast<double>(op.p);
  window.visit(at, [&](int64_t offset, int64_t) {
    sum += std::pow(std::abs(double(E::load(x.data, offset))), p);
  });
  return std::pow(sum, 1 / p);
}

void pool(const Pool& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  const Window window(op, x);
  const int64_t grain = kGrain / 16;
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    args.team.for_ranges(count(y.dims), grain, [&](int64_t begin, int64_t end) {
      Dims at = coordinates(y.dims, begin);
      for (int64_t i = begin; i < end; ++i, advance(at, y.dims)) {
        if (op.kind == PoolKind::kMax) {
          maximum<E>(x, window, at, args);
        } else {
          const double value = mean_or_norm<E>(op, x, window, at);
          ResultElements<Acc>(y).put(dot(at, y.strides), static_cast<Acc>(value));
        }
      }
    });
  });
}

constexpr KernelEntry kPoolEntries[] = {reference<Pool, pool>("cpu.pool.reference")};

}  // namespace

std::span<const KernelEntry> reference_pool_entries() { return kPoolEntries; }

}  // namespace anneal::cpu
