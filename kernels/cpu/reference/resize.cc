// Resize: along each axis an output position is a few input positions ("taps") with weights; an
// output element is the sum over all combinations of taps, in f64. Integers are truncated.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/cpu/reference/resize_taps.h"

namespace anneal::cpu {
namespace {

size_t resize_scratch(const Resize& op, std::span<const TensorView> inputs,
                      std::span<const TensorView> results) {
  if (count(results[0].dims) == 0) return 0;
  size_t taps = 0;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    const ResizeAxis axis = resize_axis(op, i, inputs[0].dims, results[0].dims, {});
    taps += static_cast<size_t>(axis.out) * static_cast<size_t>(support_of(op, axis).taps);
  }
  return taps * sizeof(Tap);
}

// The taps of every output position of every axis; width 0: the axis is not resized.
struct ResizeTaps {
  std::array<const Tap*, kMaxRank> first{};
  std::array<int64_t, kMaxRank> width{};
};

ResizeTaps make_taps(const Resize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  const TensorView* roi = args.has(2) ? &args.inputs[2] : nullptr;
  const auto roi_at = [&](size_t i) {
    return visit_float(roi->dtype, [&]<class E>(E) {
      return double(E::load(roi->data, static_cast<int64_t>(i) * roi->strides[0]));
    });
  };
  auto* next = reinterpret_cast<Tap*>(args.scratch);
  ResizeTaps taps;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    ResizeAxis axis = resize_axis(op, i, x.dims, y.dims,
                                  {.sizes = args.has(1) ? &args.inputs[1] : nullptr,
                                   .scales = args.has(3) ? &args.inputs[3] : nullptr});
    if (roi && count(roi->dims) > 0) {
      axis.roi_begin = roi_at(i);
      axis.roi_end = roi_at(i + op.axes.size());
    }
    const TapSupport support = support_of(op, axis);
    const auto a = static_cast<size_t>(op.axes[i]);
    taps.first[a] = next;
    taps.width[a] = support.taps;
    for (int64_t o = 0; o < axis.out; ++o, next += support.taps)
      fill_taps(op, axis, support, o, next);
  }
  return taps;
}

// The weighted sum over the axes from `axis` on.
template <class E>
double sample(const TensorView& x, const ResizeTaps& taps, const Dims& at, int axis,
              int64_t offset) {
  if (axis == x.dims.rank()) return double(E::load(x.data, offset));
  const int64_t width = taps.width[axis], step = x.strides[axis];
  if (width == 0) return sample<E>(x, taps, at, axis + 1, offset + at[axis] * step);
  const Tap* tap = taps.first[axis] + at[axis] * width;
  double sum = 0;
  for (int64_t i = 0; i < width; ++i)
    if (tap[i].weight != 0)
      sum += tap[i].weight * sample<E>(x, taps, at, axis + 1, offset + tap[i].position * step);
  return sum;
}

bool outside(const ResizeTaps& taps, const Dims& at) {
  for (int axis = 0; axis < at.rank(); ++axis) {
    const int64_t width = taps.width[axis];
    if (width > 0 && taps.first[axis][at[axis] * width].position == kOutside) return true;
  }
  return false;
}

template <class Acc>
Acc converted(double value) {
  if constexpr (std::is_floating_point_v<Acc>) {
    return static_cast<Acc>(value);
  } else {
    using Limits = std::numeric_limits<Acc>;
    if (!(value > double(Limits::lowest()))) return std::isnan(value) ? Acc{0} : Limits::lowest();
    return value >= double(Limits::max()) ? Limits::max() : static_cast<Acc>(value);
  }
}

void resize(const Resize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  if (count(y.dims) == 0) return;
  if (count(x.dims) == 0)
    fail(ErrorCode::kInvalidArgument, "Resize: an empty tensor has no elements to resize");
  const ResizeTaps taps = make_taps(op, args);
  visit_dtype(x.dtype, [&]<class E>(E) {
    using Acc = typename E::Acc;
    const ResultElements<Acc> out(y);
    args.team.for_ranges(count(y.dims), kGrain / 16, [&](int64_t begin, int64_t end) {
      Dims at = coordinates(y.dims, begin);
      for (int64_t i = begin; i < end; ++i, advance(at, y.dims)) {
        const int64_t target = dot(at, y.strides);
        if (outside(taps, at)) {
          out.put(target, converted<Acc>(op.extrapolation_value));
        } else if (op.mode == ResizeMode::kNearest) {
          int64_t source = 0;
          for (int axis = 0; axis < at.rank(); ++axis) {
            const bool resized = taps.width[axis] > 0;
            source += (resized ? taps.first[axis][at[axis]].position : at[axis]) * x.strides[axis];
          }
          copy_element(x, source, y, target);
        } else {
          out.put(target, converted<Acc>(sample<E>(x, taps, at, 0, 0)));
        }
      }
    });
  });
}

constexpr KernelEntry kResizeEntries[] = {
    reference<Resize, resize, resize_scratch>("cpu.resize.reference")};

}  // namespace

std::span<const KernelEntry> reference_resize_entries() { return kResizeEntries; }

}  // namespace anneal::cpu
