#include "anneal/engine/compare/compare_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/engine/data/elements.h"

namespace anneal {
namespace {

constexpr double kQuantizedSlack = 0.03;  // of the reference's largest magnitude
constexpr double kFloatModelShare = 0.001;
constexpr double kQuantizedModelShare = 0.02;
constexpr int64_t kRankedAxis = 10;  // elements from which an axis is taken for scores

std::vector<double> values_of(const ConstTensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(count(view.dims)));
  for_each_element(view,
                   [&](const std::byte* at) { values.push_back(read_element(view.dtype, at)); });
  return values;
}

double default_share(DataType dtype, Arithmetic arithmetic) {
  if (!is_integer(dtype) || arithmetic == Arithmetic::kInteger) return 0;
  return arithmetic == Arithmetic::kFloat ? kFloatModelShare : kQuantizedModelShare;
}

std::string nine_digits(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.9g}", value);
}

// NaN where the reference has none, or the other way round, is infinitely far.
double distance(double got, double expected) {
  if (std::isnan(got) && std::isnan(expected)) return 0;
  if (got == expected) return 0;
  const double far = std::abs(got - expected);
  return std::isnan(far) ? std::numeric_limits<double>::infinity() : far;
}

std::string place_of(int64_t flat, const Dims& dims) {
  Dims index = dims;
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % dims[axis];
    flat /= dims[axis];
  }
  return to_string(index);
}

// The first lane along the longest axis whose largest element has moved; -1 if none has.
int64_t moved_lane(const std::vector<double>& got, const std::vector<double>& expected,
                   const Dims& dims) {
  int longest = 0;
  for (int axis = 1; axis < dims.rank(); ++axis)
    if (dims[axis] > dims[longest]) longest = axis;
  if (dims.rank() == 0 || dims[longest] < kRankedAxis) return -1;
  const int64_t size = dims[longest], stride = row_major_strides(dims)[longest];
  for (int64_t lane = 0; lane < static_cast<int64_t>(got.size()) / size; ++lane) {
    const int64_t first = lane / stride * stride * size + lane % stride;
    double best_got = -INFINITY, best_expected = -INFINITY;
    for (int64_t i = 0; i < size; ++i) {
      best_got = std::max(best_got, got[first + i * stride]);
      best_expected = std::max(best_expected, expected[first + i * stride]);
    }
    bool shared = false;
    for (int64_t i = 0; i < size && !shared; ++i)
      shared = got[first + i * stride] == best_got && expected[first + i * stride] == best_expected;
    if (!shared && best_expected != -INFINITY) return lane;
  }
  return -1;
}

}  // namespace

Comparison compare_output(const ConstTensorView& got, const ConstTensorView& expected,
                          const Tolerance& tolerance, Arithmetic arithmetic) {
  if (got.dtype != expected.dtype)
    return {fmt::format("type {} instead of {}", to_string(got.dtype), to_string(expected.dtype))};
  if (got.dims != expected.dims)
    return {fmt::format("shape {} instead of {}", to_string(got.dims), to_string(expected.dims))};

  const bool floats = is_float(got.dtype);
  const bool quantized = floats && arithmetic == Arithmetic::kQuantized;
  // Integers beyond 2^53 are not exact as doubles, so equality is that of the bytes.
  const Tensor got_bytes = dense_copy(got), expected_bytes = dense_copy(expected);
  const std::vector<double> a = values_of(got_bytes.view()), b = values_of(expected_bytes.view());
  double slack = 0;
  if (quantized)
    for (const double value : b)
      if (std::isfinite(value)) slack = std::max(slack, kQuantizedSlack * std::abs(value));

  Comparison result;
  const size_t element = size_of(got.dtype);
  int64_t outside = 0, worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    double far = distance(a[i], b[i]);
    double allowed = 0;
    if (floats) {
      allowed = std::max(tolerance.atol + tolerance.rtol * std::abs(b[i]), slack);
    } else if (far == 0 && std::memcmp(got_bytes.bytes().data() + i * element,
                                       expected_bytes.bytes().data() + i * element, element) != 0) {
      far = 1;
    }
    if (far == 0) continue;
    result.max_abs = std::max(result.max_abs, far);
    if (b[i] != 0 && std::isfinite(b[i]))
      result.max_rel = std::max(result.max_rel, far / std::abs(b[i]));
    // An infinite reference allows nothing but itself.
    if (far <= allowed && std::isfinite(far)) continue;
    ++outside;
    const double excess = std::isfinite(allowed) ? far - allowed : far;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = static_cast<int64_t>(i);
    }
  }

  const double share = tolerance.max_differ.value_or(default_share(got.dtype, arithmetic));
  const auto may_differ = static_cast<int64_t>(std::floor(share * static_cast<double>(a.size())));
  if (outside > may_differ) {
    const std::string limit =
        !floats     ? "differ"
        : quantized ? fmt::format("differ by more than {:.3g} and {:g} of the reference",
                                  std::max(tolerance.atol, slack), tolerance.rtol)
                    : fmt::format("differ by more than {:.3g} and {:g} of the reference",
                                  tolerance.atol, tolerance.rtol);
    result.why =
        fmt::format("{} of {} elements {}{}, the worst at {}: {} instead of {}", outside, a.size(),
                    limit, may_differ > 0 ? fmt::format(" ({} may)", may_differ) : "",
                    place_of(worst, got.dims), nine_digits(a[worst]), nine_digits(b[worst]));
  } else if (quantized && tolerance.ranked) {
    const int64_t lane = moved_lane(a, b, got.dims);
    if (lane >= 0) result.why = fmt::format("the top-1 of row {} is not the reference's", lane);
  }
  return result;
}

}  // namespace anneal
