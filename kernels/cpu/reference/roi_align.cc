// RoiAlign: each region is cut into bins, and each bin is the average, or the maximum, of samples
// between the elements of x.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/cpu/reference/roi_samples.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kChannels = 64;  // that share the arithmetic of a sample's place

template <class E>
struct Image {
  const TensorView& x;
  int64_t offset = 0;
  double at(int64_t channel, int64_t h, int64_t w) const {
    return double(
        E::load(x.data, offset + channel * x.strides[1] + h * x.strides[2] + w * x.strides[3]));
  }
};

// The bin (h, w) for the channels [first, first + channels), into sums.
template <class E, class T>
void pool_bin(PoolKind kind, const Image<E>& image, const Samples<T>& rows,
              const Samples<T>& columns, int64_t h, int64_t w, int64_t first, int64_t channels,
              std::array<double, kChannels>& sums) {
  const bool maximum = kind == PoolKind::kMax;
  const double total = rows.count * columns.count;
  sums.fill(maximum && total > 0 ? -std::numeric_limits<double>::infinity() : 0);
  const auto [row_begin, row_end] = rows.inside(h);
  const auto [column_begin, column_end] = columns.inside(w);
  double met = 0;
  for (int64_t row = row_begin; row < row_end; ++row) {
    SamplePlace r, c;
    if (!rows.place(h, row, r)) continue;
    for (int64_t column = column_begin; column < column_end; ++column) {
      if (!columns.place(w, column, c)) continue;
      ++met;
      for (int64_t i = 0; i < channels; ++i) {
        const int64_t channel = first + i;
        const double a = r.of_low * c.of_low * image.at(channel, r.low, c.low);
        const double b = r.of_low * c.of_high * image.at(channel, r.low, c.high);
        const double d = r.of_high * c.of_low * image.at(channel, r.high, c.low);
        const double e = r.of_high * c.of_high * image.at(channel, r.high, c.high);
        double& sum = sums[static_cast<size_t>(i)];
        sum = maximum ? std::max({sum, a, b, d, e}) : sum + (a + b + d + e);
      }
    }
  }
  for (double& sum : sums) {
    if (!maximum) sum /= std::max(total, 1.0);
    if (maximum && met < total) sum = std::max(sum, 0.0);  // samples outside
  }
}

template <class E>
void align_region(const RoiAlign& op, const ReferenceArgs& args, int64_t region) {
  using T = typename E::Acc;
  const TensorView &x = args.inputs[0], &regions = args.inputs[1], &images = args.inputs[2];
  const TensorView& y = args.results[0];
  const int64_t n = image_of_region(images, region, x.dims[0]);
  const auto corner = [&](int64_t i) {
    return E::load(regions.data, region * regions.strides[0] + i * regions.strides[1]);
  };
  const auto columns = samples_of<T>(op, corner(0), corner(2), op.width, x.dims[3]);
  const auto rows = samples_of<T>(op, corner(1), corner(3), op.height, x.dims[2]);
  const Image<E> image{x, n * x.strides[0]};
  const ResultElements<T> out(y);
  std::array<double, kChannels> sums;
  for (int64_t first = 0; first < x.dims[1]; first += kChannels) {
    const int64_t channels = std::min(kChannels, x.dims[1] - first);
    for (int64_t h = 0; h < op.height; ++h) {
      for (int64_t w = 0; w < op.width; ++w) {
        pool_bin(op.kind, image, rows, columns, h, w, first, channels, sums);
        for (int64_t i = 0; i < channels; ++i)
          out.put(region * y.strides[0] + (first + i) * y.strides[1] + h * y.strides[2] +
                      w * y.strides[3],
                  static_cast<T>(sums[static_cast<size_t>(i)]));
      }
    }
  }
}

void roi_align(const RoiAlign& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &y = args.results[0];
  if (count(y.dims) == 0) return;
  if (count(x.dims) == 0) fail(ErrorCode::kInvalidArgument, "an empty image has nothing to sample");
  visit_float(x.dtype, [&]<class E>(E) {
    args.team.for_ranges(y.dims[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t region = begin; region < end; ++region) align_region<E>(op, args, region);
    });
  });
}

constexpr KernelEntry kRoiAlignEntries[] = {
    reference<RoiAlign, roi_align>("cpu.roi_align.reference")};

}  // namespace

std::span<const KernelEntry> reference_roi_align_entries() { return kRoiAlignEntries; }

}  // namespace anneal::cpu
