// Quantize and Dequantize, with one scale, one per position of an axis, or one per block of it.
#include <cmath>
#include <limits>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// Where in the scale (or zero point) the parameter of an element of x is.
int64_t parameter_offset(const TensorView& scale, int64_t axis, int64_t block_size,
                         const Dims& at) {
  const int a = static_cast<int>(axis);
  if (block_size > 0) {
    Dims block = at;
    block[a] /= block_size;
    return dot(block, scale.strides);
  }
  return count(scale.dims) > 1 ? at[a] * scale.strides[0] : 0;
}

// A float of any type, or an integer, as f64: exact but for large 64-bit integers.
double load_number(const TensorView& view, int64_t i) {
  return visit_dtype(view.dtype, [&]<class E>(E) { return double(E::load(view.data, i)); });
}

// NaN becomes 0, as kSaturate has it.
template <class T>
T saturated(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return T{0};
  if (value <= double(Limits::lowest())) return Limits::lowest();
  if (value >= double(Limits::max())) return Limits::max();
  return static_cast<T>(value);
}

// In f32, and f64 where x or its scale is f64.
double rounded_quotient(const TensorView& x, double value, const TensorView& scale,
                        double divisor) {
  if (x.dtype == DataType::kF64 || scale.dtype == DataType::kF64)
    return std::nearbyint(value / divisor);
  return std::nearbyint(static_cast<float>(value) / static_cast<float>(divisor));
}

void quantize(const Quantize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &scale = args.inputs[1], &y = args.results[0];
  const TensorView* zero = args.has(2) ? &args.inputs[2] : nullptr;
  visit_dtype(y.dtype, [&]<class Y>(Y) {
    args.team.for_ranges(count(y.dims), kGrain, [&](int64_t begin, int64_t end) {
      Dims at = coordinates(y.dims, begin);
      for (int64_t i = begin; i < end; ++i, advance(at, y.dims)) {
        const int64_t parameter = parameter_offset(scale, op.axis, op.block_size, at);
        const double value = load_number(x, dot(at, x.strides));
        const double quotient = rounded_quotient(x, value, scale, load_number(scale, parameter));
        double zero_point = 0;
        if (zero)
          zero_point = load_number(*zero, parameter_offset(*zero, op.axis, op.block_size, at));
        ResultElements<typename Y::Acc>(y).put(dot(at, y.strides),
                                               saturated<typename Y::Acc>(quotient + zero_point));
      }
    });
  });
}

// The difference is exact; its product with the scale is in f32, or f64 for an f64 scale.
void dequantize(const Dequantize& op, const ReferenceArgs& args) {
  const TensorView &x = args.inputs[0], &scale = args.inputs[1], &y = args.results[0];
  const TensorView* zero = args.has(2) ? &args.inputs[2] : nullptr;
  visit_float(scale.dtype, [&]<class S>(S) {
    using Acc = typename S::Acc;
    args.team.for_ranges(count(y.dims), kGrain, [&](int64_t begin, int64_t end) {
      Dims at = coordinates(y.dims, begin);
      for (int64_t i = begin; i < end; ++i, advance(at, y.dims)) {
        double difference = load_number(x, dot(at, x.strides));
        if (!has_integers(op.encoding))
          difference = number_of(op.encoding, static_cast<uint8_t>(difference));
        if (zero)
          difference -= load_number(*zero, parameter_offset(*zero, op.axis, op.block_size, at));
        const Acc factor = S::load(scale.data, parameter_offset(scale, op.axis, op.block_size, at));
        ResultElements<Acc>(y).put(dot(at, y.strides), static_cast<Acc>(difference) * factor);
      }
    });
  });
}

constexpr KernelEntry kQuantizeEntries[] = {
    reference<Quantize, quantize>("cpu.quantize.reference"),
    reference<Dequantize, dequantize>("cpu.dequantize.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_quantize_entries() { return kQuantizeEntries; }

}  // namespace anneal::cpu
