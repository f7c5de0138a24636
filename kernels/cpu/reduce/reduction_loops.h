// Loops of softmax, normalization and reductions over f32 in memory: along a row, or along columns
// with one result for each. Sums have the same order for any team.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "anneal/core/isa.h"

namespace anneal::cpu {

enum class Reduction : uint8_t {
  kSum,
  kProd,
  kMax,  // NaN if there is one
  kMin,
  kDifferences,  // sum of x - shift
  kSquares,      // sum of (x - shift)^2
  kExp,          // sum of exp(x - shift)
};
enum class Map : uint8_t {
  kAffine,  // (x - shift) * scale + offset
  kExp,     // exp(x - shift) * scale
};

// rows x columns of f32 with adjacent columns.
struct ReductionBlock {
  const float* x = nullptr;
  int64_t row_stride = 0;
  int64_t rows = 0, columns = 0;
};

// What becomes of a row: y = (x - shift) * scale + offset, where its mean is 0 and its variance 1.
struct AffineNumbers {
  float shift = 0, scale = 1, offset = 0;
};
// From the mean of elements, and the sum of squares around the mean as f32 has it.
inline AffineNumbers normalization(double mean, double squares, int64_t elements, float epsilon) {
  const auto shift = static_cast<float>(mean);
  const double beside = mean - shift;
  const double variance = squares / static_cast<double>(elements) - beside * beside;
  const double scale = 1 / std::sqrt(std::max(variance, 0.0) + epsilon);
  return {shift, static_cast<float>(scale), static_cast<float>(-beside * scale)};
}

// Rows of n adjacent elements, each of which is normalized by itself.
struct NormRows {
  const float* x = nullptr;
  float* out = nullptr;
  int64_t rows = 0, n = 0;
  int64_t x_stride = 0, out_stride = 0;  // from row to row
  bool is_softmax = false, is_log = false, subtract_mean = true;
  float epsilon = 0;
};

struct ReductionLoops {
  // Of all n elements. REQUIRES: at most 2^16 of them, so that f32 holds their sum well
  double (*row)(Reduction fold, const float* x, int64_t n, float shift);
  // Of each of `rows` rows, `stride` apart. REQUIRES: n as in row(); no fold that has a shift
  void (*rows)(Reduction fold, const float* x, int64_t rows, int64_t n, int64_t stride,
               double* results);
  // result[column] = of this column. REQUIRES: at most 256 rows
  void (*columns)(Reduction fold, const ReductionBlock& block, const float* shift, float* result);
  // out may be x.
  void (*map_row)(Map map, const float* x, int64_t n, float shift, float scale, float offset,
                  float* out);
  // out is dense; shift, scale and offset have one number per column.
  void (*map_columns)(Map map, const ReductionBlock& block, const float* shift, const float* scale,
                      const float* offset, float* out);
  // out[i] = exp((x[i] - shift) * scale), and the sum of these. out may be x. REQUIRES: as row(),
  // no x above shift, and scale > 0
  double (*exp_row)(const float* x, int64_t n, float shift, float scale, float* out);
  // x[i] = x[i] * scale + mask[i], each operation rounded, and the largest of these, NaN if there
  // is one. keeps_hidden: -inf where mask[i] is that.
  double (*mask_row)(float* x, const float* mask, int64_t n, float scale, bool keeps_hidden);
  // REQUIRES: n as in row()
  void (*norm_rows)(const NormRows& rows);
};
ReductionLoops reduction_loops(Isa isa);

// The result for no elements.
constexpr float start_of(Reduction fold) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (fold) {
    case Reduction::kProd:
      return 1;
    case Reduction::kMax:
      return -kInfinity;
    case Reduction::kMin:
      return kInfinity;
    default:
      return 0;
  }
}
// Of the results of two parts.
inline double combined(Reduction fold, double a, double b) {
  switch (fold) {
    case Reduction::kProd:
      return a * b;
    case Reduction::kMax:
      return a != a || a > b ? a : b;
    case Reduction::kMin:
      return a != a || a < b ? a : b;
    default:
      return a + b;
  }
}

// by(kind) with the fold as a constant: kProd, kMax, kMin, and kSum for all whose parts are added.
template <class F>
void with_kind(Reduction fold, const F& by) {
  switch (fold) {
    case Reduction::kProd:
      return by(std::integral_constant<Reduction, Reduction::kProd>());
    case Reduction::kMax:
      return by(std::integral_constant<Reduction, Reduction::kMax>());
    case Reduction::kMin:
      return by(std::integral_constant<Reduction, Reduction::kMin>());
    default:
      return by(std::integral_constant<Reduction, Reduction::kSum>());
  }
}

// Merges each of `count` totals with a further part.
template <class Number>
void combine(Reduction fold, const Number* parts, int64_t count, double* totals) {
  with_kind(fold, [&](auto kind) {
    for (int64_t i = 0; i < count; ++i) totals[i] = combined(kind, totals[i], parts[i]);
  });
}

}  // namespace anneal::cpu
