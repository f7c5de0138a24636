// The inner loops of convolutions whose groups have few channels: each lane of a vector of outputs
// picks its group's channels out of a vector or two of x.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/conv/small_groups.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "anneal/kernels/cpu/conv/direct.h"

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = HWY_LANES(float);
constexpr int64_t kPixels = 4;  // side by side, so that sums do not wait for each other

// kTables vectors of x. kPartial: some of their elements may be past the last channel.
template <int kTables, bool kPartial>
HWY_INLINE void load_tables(const float* from, int64_t left, V (&tables)[kTables]) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  if constexpr (kPartial) {
    for (int t = 0; t < kTables; ++t) {
      const int64_t count = std::clamp<int64_t>(left - t * kLanes, 0, kLanes);
      tables[t] =
          hn::MaskedLoad(hn::FirstN(D(), static_cast<size_t>(count)), D(), from + t * kLanes);
    }
    return;
  }
#endif
  if constexpr (kPartial) {
    HWY_ALIGN float copy[kTables * kLanes] = {};
    std::memcpy(copy, from, static_cast<size_t>(std::min(left, kTables * kLanes)) * sizeof(float));
    for (int t = 0; t < kTables; ++t) tables[t] = hn::Load(D(), copy + t * kLanes);
  } else {
    for (int t = 0; t < kTables; ++t) tables[t] = hn::LoadU(D(), from + t * kLanes);
  }
}

// Of the elements of all tables, those at these places.
template <int kTables, class VI>
HWY_INLINE V look_up(const V (&tables)[kTables], VI places) {
  const hn::RebindToSigned<D> di;
  if constexpr (kTables == 1) {
    return hn::TableLookupLanes(tables[0], hn::IndicesFromVec(D(), places));
  } else {
    const auto last = hn::Set(di, static_cast<int32_t>(kLanes - 1));
    const auto indices = hn::IndicesFromVec(D(), hn::And(places, last));
    const auto second = hn::RebindMask(D(), hn::Gt(places, last));
    return hn::IfThenElse(second, hn::TableLookupLanes(tables[1], indices),
                          hn::TableLookupLanes(tables[0], indices));
  }
}

// One vector of outputs for kCount pixels that meet the same columns of the kernel.
template <int kCount, int kTables, bool kPartial>
HWY_INLINE void run_vector(const DirectRun& run, int64_t first, int64_t channel,
                           const int32_t* lookup, float* out) {
  const hn::RebindToSigned<D> di;
  const int64_t base = lookup[0], group = run.group_channels;
  const int32_t* const places = lookup + 1;
  const PixelColumn& pixel = run.pixels[first];
  V sums[kCount];
  for (int p = 0; p < kCount; ++p) sums[p] = hn::Zero(D());
  const int64_t tap_step = group * run.padded;
  for (int64_t row = 0; row < run.taps.rows; ++row) {
    const float* weight = run.weights + run.taps.kernel_rows[row] * run.kernel_row +
                          pixel.first_column * tap_step + channel;
    const int64_t offset = run.taps.row_offsets[row] + base;
    for (int64_t column = 0; column < pixel.columns; ++column) {
      const float* from[kCount];
      for (int p = 0; p < kCount; ++p)
        from[p] = reinterpret_cast<const float*>(run.pixels[first + p].x) + offset +
                  column * run.taps.column_step;
      if constexpr (kLanes == 1) {
        for (int64_t i = 0; i < group; ++i, weight += run.padded)
          for (int p = 0; p < kCount; ++p)
            sums[p] =
                hn::MulAdd(hn::LoadU(D(), from[p] + places[i]), hn::LoadU(D(), weight), sums[p]);
        continue;
      }
      V tables[kCount][kTables];
      for (int p = 0; p < kCount; ++p)
        load_tables<kTables, kPartial>(from[p], run.x_channels - base, tables[p]);
      for (int64_t i = 0; i < group; ++i, weight += run.padded) {
        const auto in_tables = hn::LoadU(di, places + i * kLanes);
        const V w = hn::LoadU(D(), weight);
        for (int p = 0; p < kCount; ++p)
          sums[p] = hn::MulAdd(look_up<kTables>(tables[p], in_tables), w, sums[p]);
      }
    }
  }
  for (int p = 0; p < kCount; ++p) {
    float* const to = out + (first + p) * run.channels + channel;
    if (run.channels >= kLanes) {
      hn::StoreU(sums[p], D(), to);
    } else {
      HWY_ALIGN float copy[kLanes];
      hn::Store(sums[p], D(), copy);
      std::memcpy(to, copy, static_cast<size_t>(run.channels) * sizeof(float));
    }
  }
}

template <int kTables, bool kPartial>
void run_pixels(const DirectRun& run, float* out) {
  const auto same_columns = [&](int64_t a, int64_t b) {
    return run.pixels[a].columns == run.pixels[b].columns &&
           run.pixels[a].first_column == run.pixels[b].first_column;
  };
  for (int64_t i = 0; i < run.count;) {
    int64_t end = i + 1;
    while (end < run.count && end - i < kPixels && same_columns(i, end)) ++end;
    const bool all = end - i == kPixels;
    const int32_t* lookup = run.lookup + 1;
    for (int64_t done = 0, vector = 0; done < run.channels; ++vector, done += kLanes) {
      const int64_t channel = vector_start(vector, kLanes, run.channels);
      if (all) {
        run_vector<kPixels, kTables, kPartial>(run, i, channel, lookup, out);
      } else {
        for (int64_t pixel = i; pixel < end; ++pixel)
          run_vector<1, kTables, kPartial>(run, pixel, channel, lookup, out);
      }
      lookup += 1 + run.group_channels * kLanes;
    }
    i = end;
  }
}

}  // namespace

void grouped_run(const DirectRun& run, float* out) {
  const bool two = run.lookup[0] == 2;
  const bool partial = run.x_channels < (two ? 2 : 1) * kLanes;
  if (two) return partial ? run_pixels<2, true>(run, out) : run_pixels<2, false>(run, out);
  return partial ? run_pixels<1, true>(run, out) : run_pixels<1, false>(run, out);
}

int64_t grouped_lanes() { return kLanes; }

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anneal::cpu {

RunGrouped run_grouped(Isa isa) {
  return {ANNEAL_BY_ISA(isa, grouped_lanes)(), ANNEAL_BY_ISA(isa, grouped_run)};
}

}  // namespace anneal::cpu
#endif
