// 8-bit integers: QuantizeLinear and DequantizeLinear around floats, and products of integers.
// Scales are powers of two, so that every result is the same in any order of sums.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

Value scale_constant(Maker& maker, int exponent) {
  return number_constant(maker, std::ldexp(1, exponent));
}

struct Quantized {
  Value integers, scale, zero;
  int exponent = 0;
};

double least(int type) { return type == onnx::UINT8 ? 0 : -128; }

Quantized quantize(Maker& maker, const Value& x) {
  RandomNumbers& random = maker.random();
  const int type = random.one_of({onnx::UINT8, onnx::INT8});
  const int exponent =
      std::max<int>(-4, static_cast<int>(std::ceil(std::log2(std::max(x.largest(), .5)))) - 6);
  const int64_t zero =
      type == onnx::UINT8 ? random.one_of({0, 128, 100}) : random.one_of({0, 0, 3});
  Quantized q{{}, scale_constant(maker, exponent), scalar_constant(maker, zero, type), exponent};
  q.integers = maker.apply(
      "QuantizeLinear", {x, q.scale, q.zero},
      {.type = type, .dims = x.dims, .low = least(type), .high = least(type) + 255, .grid = 0});
  return q;
}

Value dequantize(Maker& maker, const Quantized& q) {
  const double bound = 256 * std::ldexp(1, q.exponent);
  return maker.apply(
      "DequantizeLinear", {q.integers, q.scale, q.zero},
      {.dims = q.integers.dims, .low = -bound, .high = bound, .grid = std::max(0, -q.exponent)});
}

// Exact ones: others may lie between two integers.
std::optional<Value> choose_exact(Maker& maker, int rank_from, int rank_to) {
  return maker.choose([&](const Value& v) {
    return v.is_float() && v.exact() && v.rank() >= rank_from && v.rank() <= rank_to &&
           !v.is_constant;
  });
}

// Weights as 8-bit integers with a scale for each filter or for all.
Value weights(Maker& maker, const Extents& dims, bool by_filter, int64_t axis) {
  RandomNumbers& random = maker.random();
  anneal_onnx::TensorProto tensor, scales;
  tensor.set_data_type(onnx::INT8);
  for (const Extent& dim : dims) tensor.add_dims(dim.in[0]);
  for (int64_t i = 0; i < product(dims).in[0]; ++i)
    tensor.add_int32_data(static_cast<int32_t>(random.between(-127, 127)));
  scales.set_data_type(onnx::FLOAT);
  const Extent filters = dims[static_cast<size_t>(axis)];
  if (by_filter) scales.add_dims(filters.in[0]);
  for (int64_t i = 0; i < (by_filter ? filters.in[0] : 1); ++i)
    scales.add_float_data(std::ldexp(1.f, -7 + static_cast<int>(random.below(2))));
  const Value integers = maker.constant(
      tensor, {.type = onnx::INT8, .dims = dims, .low = -127, .high = 127, .grid = 0});
  const Value scale = maker.constant(
      scales, {.dims = by_filter ? Extents{filters} : Extents(), .low = 0, .high = 1, .grid = 7});
  return maker.apply("DequantizeLinear", {integers, scale},
                     {.dims = dims, .low = -2, .high = 2, .grid = 7}, [&](auto& node) {
                       if (by_filter) set(node, "axis", axis);
                     });
}

bool quantize_dequantize(Maker& maker) {
  const auto x = choose_exact(maker, 0, 5);
  if (!x) return false;
  dequantize(maker, quantize(maker, *x));
  return true;
}

bool quantized_matmul(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.exact() && v.rank() >= 2 && v.dims.back().constant() && !v.is_constant;
  });
  if (!x) return false;
  const Value a = dequantize(maker, quantize(maker, *x));
  const Extent inner = x->dims.back(), columns = random.one_of<int64_t>({1, 2, 4, 8, 16});
  const bool gemm = x->rank() == 2 && random.one_in(2);
  const Value b = weights(maker, {inner, columns}, random.one_in(2), 1);
  const double bound = a.largest() * 2 * static_cast<double>(inner.in[0]) + 1;
  Extents dims = x->dims;
  dims.back() = columns;
  Value y{
      .dims = dims, .low = -bound, .high = bound, .grid = exact_grid(product_grid(a, b), bound)};
  std::vector<Value> inputs = {a, b};
  if (gemm && random.one_in(2)) inputs.push_back(float_constant(maker, {columns}, -1, 1, true));
  y = maker.apply(gemm ? "Gemm" : "MatMul", inputs, y);
  if (random.one_in(3))
    y = maker.apply("Relu", {y},
                    {.dims = dims, .low = 0, .high = std::max(0., y.high), .grid = y.grid});
  if (y.exact() && !random.one_in(4)) dequantize(maker, quantize(maker, y));
  return true;
}

bool quantized_conv(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.exact() && v.rank() == 4 && v.dims[1].constant() &&
           v.dims[2].least() >= 3 && v.dims[3].least() >= 3;
  });
  if (!x) return false;
  const Value a = dequantize(maker, quantize(maker, *x));
  const int64_t channels = x->dims[1].in[0], kernel = random.one_of({1, 2, 3}),
                stride = random.between(1, 2);
  const int64_t groups = random.one_in(3) ? channels : 1,
                filters = groups * random.one_of({1, 2, 4}), pad = kernel / 2;
  const Value w = weights(maker, {filters, channels / groups, kernel, kernel}, random.one_in(2), 0);
  const double bound =
      a.largest() * 2 * static_cast<double>(channels / groups * kernel * kernel) + 1;
  const auto size = [&](const Extent& e) { return (e + (2 * pad - kernel)) / stride + 1; };
  // Without Q after it, it is a Conv of floats, whose fast algorithms round.
  Value y{.dims = {x->dims[0], filters, size(x->dims[2]), size(x->dims[3])},
          .low = -bound,
          .high = bound,
          .grid = kernel == 3 && stride == 1 ? -1 : exact_grid(product_grid(a, w), bound)};
  if (!is_small(y.dims)) return false;
  std::vector<Value> inputs = {a, w};
  if (random.one_in(2)) inputs.push_back(float_constant(maker, {filters}, -1, 1, true));
  y = maker.apply("Conv", inputs, y, [&](auto& node) {
    set(node, "kernel_shape", std::vector<int64_t>{kernel, kernel});
    set(node, "strides", std::vector<int64_t>{stride, stride});
    set(node, "pads", std::vector<int64_t>{pad, pad, pad, pad});
    set(node, "group", groups);
  });
  if (y.exact()) dequantize(maker, quantize(maker, y));
  return true;
}

// Of two quantized values.
bool quantized_arithmetic(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = choose_exact(maker, 1, 4);
  if (!x) return false;
  const auto y = maker.choose([&](const Value& v) {
    const auto dims = v.is_float() && v.exact() ? broadcast(v.dims, x->dims) : std::nullopt;
    return dims && is_small(*dims);
  });
  if (!y) return false;
  const Value a = dequantize(maker, quantize(maker, *x)),
              b = dequantize(maker, quantize(maker, *y));
  const bool add = random.one_in(2);
  const double bound = add ? a.largest() + b.largest() : a.largest() * b.largest();
  const Value sum = maker.apply(
      add ? "Add" : "Mul", {a, b},
      {.dims = *broadcast(x->dims, y->dims),
       .low = -bound,
       .high = bound,
       .grid = add && a.exact() && b.exact() ? std::max(a.grid, b.grid) : product_grid(a, b)});
  if (sum.exact()) dequantize(maker, quantize(maker, sum));
  return true;
}

bool integer_matmul(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.exact() && v.rank() >= 2 && v.dims.back().constant() && !v.is_constant;
  });
  if (!x) return false;
  const Quantized a = quantize(maker, *x);
  const Extent inner = x->dims.back(), columns = random.between(1, 8);
  anneal_onnx::TensorProto tensor;
  const int type = random.one_of({onnx::INT8, onnx::UINT8});
  tensor.set_data_type(type);
  tensor.add_dims(inner.in[0]);
  tensor.add_dims(columns.in[0]);
  for (int64_t i = 0; i < (inner * columns).in[0]; ++i)
    tensor.add_int32_data(static_cast<int32_t>(random.between(type == onnx::INT8 ? -127 : 0, 127)));
  const Value b = maker.constant(
      tensor, {.type = type, .dims = {inner, columns}, .low = -127, .high = 127, .grid = 0});
  Extents dims = x->dims;
  dims.back() = columns;
  const double bound = 255. * 255 * static_cast<double>(inner.in[0]);
  if (random.one_in(2)) {
    const Value product =
        maker.apply("MatMulInteger",
                    {a.integers, b, a.zero, scalar_constant(maker, random.between(0, 3), type)},
                    {.type = onnx::INT32, .dims = dims, .low = -bound, .high = bound, .grid = 0});
    const Value real =
        maker.apply("Cast", {product}, {.dims = dims, .low = -16, .high = 16, .grid = 0},
                    [](auto& node) { set(node, "to", int64_t{onnx::FLOAT}); });
    maker.apply("Mul", {real, number_constant(maker, std::ldexp(1, -10))},
                {.dims = dims,
                 .low = -bound / 1024,
                 .high = bound / 1024,
                 .grid = bound < (1 << 22) ? 10 : -1});
    return true;
  }
  const Value scale = scale_constant(maker, -6), result_scale = scale_constant(maker, 0);
  const Value y = maker.apply("QLinearMatMul",
                              {a.integers, a.scale, a.zero, b, scale,
                               scalar_constant(maker, 0, type), result_scale, a.zero},
                              {.type = a.integers.type,
                               .dims = dims,
                               .low = a.integers.low,
                               .high = a.integers.high,
                               .grid = 0});
  dequantize(maker, {y, result_scale, a.zero, 0});
  return true;
}

bool integer_conv(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.exact() && v.rank() == 4 && v.dims[1].constant() &&
           v.dims[2].least() >= 2 && v.dims[3].least() >= 2;
  });
  if (!x) return false;
  const Quantized a = quantize(maker, *x);
  const int64_t channels = x->dims[1].in[0], filters = random.between(1, 4),
                kernel = random.between(1, 2);
  anneal_onnx::TensorProto tensor;
  tensor.set_data_type(onnx::INT8);
  for (const int64_t dim : {filters, channels, kernel, kernel}) tensor.add_dims(dim);
  for (int64_t i = 0; i < filters * channels * kernel * kernel; ++i)
    tensor.add_int32_data(static_cast<int32_t>(random.between(-127, 127)));
  const Value w = maker.constant(tensor, {.type = onnx::INT8,
                                          .dims = {filters, channels, kernel, kernel},
                                          .low = -127,
                                          .high = 127,
                                          .grid = 0});
  const Extents dims = {x->dims[0], filters, x->dims[2] - (kernel - 1), x->dims[3] - (kernel - 1)};
  if (!is_small(dims)) return false;
  if (random.one_in(2) && a.integers.type == onnx::UINT8) {
    const double bound = 255. * 127 * static_cast<double>(channels * kernel * kernel);
    const Value product =
        maker.apply("ConvInteger", {a.integers, w, a.zero},
                    {.type = onnx::INT32, .dims = dims, .low = -bound, .high = bound, .grid = 0});
    maker.apply("Cast", {product}, {.dims = dims, .low = -bound, .high = bound, .grid = 0},
                [](auto& node) { set(node, "to", int64_t{onnx::FLOAT}); });
    return true;
  }
  const Value scale = scale_constant(maker, -7), result_scale = scale_constant(maker, -2);
  const Value y = maker.apply("QLinearConv",
                              {a.integers, a.scale, a.zero, w, scale,
                               scalar_constant(maker, 0, onnx::INT8), result_scale, a.zero},
                              {.type = a.integers.type,
                               .dims = dims,
                               .low = a.integers.low,
                               .high = a.integers.high,
                               .grid = 0});
  dequantize(maker, {y, result_scale, a.zero, -2});
  return true;
}

// The scale follows from the data: a result near the middle of two integers may be either.
bool dynamic_quantize(Maker& maker) {
  const auto x = choose_exact(maker, 1, 4);
  if (!x) return false;
  maker.round_coarsely();
  const double range = std::max(x->high, 0.) - std::min(x->low, 0.);
  const std::vector<Value> parts =
      maker.apply_all("DynamicQuantizeLinear", {*x},
                      {{.type = onnx::UINT8, .dims = x->dims, .high = 255, .grid = 0},
                       {.low = 0, .high = range / 255 + .01},
                       {.type = onnx::UINT8, .high = 255, .grid = 0}});
  // The scale of zeros alone is in dispute: 0 by the formula, 1 in ONNX Runtime.
  for (const Value& part : parts) maker.hide(part);
  maker.apply("DequantizeLinear", parts,
              {.dims = x->dims, .low = x->low - .5, .high = x->high + .5});
  return true;
}

constexpr Step kSteps[] = {
    {"quantize_dequantize", quantize_dequantize, 3},
    {"quantized_matmul", quantized_matmul, 6},
    {"quantized_conv", quantized_conv, 6},
    {"quantized_arithmetic", quantized_arithmetic, 3},
    {"integer_matmul", integer_matmul, 2},
    {"integer_conv", integer_conv, 2},
    {"dynamic_quantize", dynamic_quantize, 1},
};

}  // namespace

std::span<const Step> quantized_steps() { return kSteps; }

}  // namespace anneal::random_graphs
