// Groups of nodes that exporters write for one function, which passes look for.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

Value with(const Value& x, double low, double high) {
  return {.dims = x.dims, .low = low, .high = high};
}

std::optional<Value> choose_rows(Maker& maker) {
  return maker.choose(
      [](const Value& v) { return v.is_float() && v.rank() >= 2 && v.largest() <= 16; });
}

bool gelu(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.largest() <= 16; });
  if (!x) return false;
  const double bound = x->largest();
  Value y = maker.apply("Div", {*x, number_constant(maker, std::sqrt(2))}, with(*x, -bound, bound));
  y = maker.apply("Erf", {y}, with(*x, -1, 1));
  y = maker.apply("Add", {y, number_constant(maker, 1)}, with(*x, 0, 2));
  if (maker.random().one_in(2)) {
    y = maker.apply("Mul", {*x, y}, with(*x, -2 * bound, 2 * bound));
    maker.apply("Mul", {y, number_constant(maker, .5)}, with(*x, -bound, bound));
  } else {
    const Value half =
        maker.apply("Mul", {*x, number_constant(maker, .5)}, with(*x, -bound, bound));
    maker.apply("Mul", {half, y}, with(*x, -bound, bound));
  }
  return true;
}

bool swish(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.largest() <= 16; });
  if (!x) return false;
  const Value gate = maker.apply("Sigmoid", {*x}, with(*x, 0, 1));
  maker.apply("Mul", {*x, gate}, with(*x, -.3, x->largest()));
  return true;
}

Value mean_of_rows(Maker& maker, const Value& x, double low, double high) {
  Value result{.dims = x.dims, .low = low, .high = high};
  result.dims.back() = 1;
  const bool as_input = maker.opset() >= 18;
  std::vector<Value> inputs = {x};
  if (as_input) inputs.push_back(integer_constant(maker, {-1}));
  return maker.apply("ReduceMean", inputs, result, [&](auto& node) {
    if (!as_input) set(node, "axes", std::vector<int64_t>{-1});
  });
}

bool layer_norm(Maker& maker) {
  const auto x = choose_rows(maker);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const double bound = 2 * x->largest(),
               n = 2 * std::sqrt(static_cast<double>(x->dims.back().largest())) + 2;
  const bool center = random.one_in(2);
  Value d = *x;
  if (center)
    d = maker.apply("Sub", {*x, mean_of_rows(maker, *x, x->low, x->high)}, with(*x, -bound, bound));
  const Value square = random.one_in(2)
                           ? maker.apply("Pow", {d, number_constant(maker, 2)}, with(*x, 0, 31))
                           : maker.apply("Mul", {d, d}, with(*x, 0, 31));
  const Value variance = mean_of_rows(maker, square, 0, 31);
  const Value safe =
      maker.apply("Add", {variance, number_constant(maker, .01)}, with(variance, .01, 32));
  const Value root = maker.apply("Sqrt", {safe}, with(variance, .1, 6));
  Value y;
  if (random.one_in(2)) {
    y = maker.apply("Div", {d, root}, with(*x, -n, n));
  } else {
    const Value inverse = maker.apply("Reciprocal", {root}, with(variance, .1, 10));
    y = maker.apply("Mul", {d, inverse}, with(*x, -n, n));
  }
  if (!x->dims.back().constant()) return true;
  const Value scale = float_constant(maker, {x->dims.back()}, .5, 1.5, false);
  y = maker.apply("Mul", {scale, y}, with(*x, -2 * n, 2 * n));
  if (random.one_in(2))
    maker.apply("Add", {y, float_constant(maker, {x->dims.back()}, -1, 1, false)},
                with(*x, -2 * n - 1, 2 * n + 1));
  return true;
}

// Heads of queries, keys and values from one sequence.
bool attention(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.rank() == 3 && v.dims[2].constant() && v.dims[2].in[0] % 2 == 0 &&
           v.largest() <= 16;
  });
  if (!x) return false;
  const Extent width = x->dims[2], heads = 2, size = width / 2;
  const auto project = [&] {
    const double bound = x->largest() * static_cast<double>(width.in[0]);
    const Value w = float_constant(maker, {width, width}, -.5, .5, false);
    Value y = maker.apply("MatMul", {*x, w}, with(*x, -bound / 2, bound / 2));
    if (random.one_in(2))
      y = maker.apply("Add", {y, float_constant(maker, {width}, -1, 1, false)},
                      with(*x, -y.largest() - 1, y.largest() + 1));
    return y;
  };
  const Extents split = {x->dims[0], x->dims[1], heads, size};
  const auto shape =
      random.one_in(2) ? size_vector(maker, split) : size_vector(maker, {0, 0, heads, size});
  if (!shape) return false;
  const auto in_heads = [&](const Value& y, const std::vector<int64_t>& order) {
    Value parts =
        maker.apply("Reshape", {y, *shape}, {.dims = split, .low = y.low, .high = y.high});
    Extents dims;
    for (const int64_t axis : order) dims.push_back(split[static_cast<size_t>(axis)]);
    return maker.apply("Transpose", {parts}, {.dims = dims, .low = y.low, .high = y.high},
                       [&](auto& node) { set(node, "perm", order); });
  };
  const Value q = in_heads(project(), {0, 2, 1, 3}), k = in_heads(project(), {0, 2, 3, 1}),
              v = in_heads(project(), {0, 2, 1, 3});
  const Extents scores = {x->dims[0], heads, x->dims[1], x->dims[1]};
  if (!is_small(scores)) return false;
  const double bound = q.largest() * k.largest() * static_cast<double>(size.in[0]);
  Value s = maker.apply("MatMul", {q, k}, {.dims = scores, .low = -bound, .high = bound});
  s = maker.apply("Mul", {s, number_constant(maker, .25)},
                  with(s, -s.largest() / 4, s.largest() / 4));
  if (random.one_in(2)) {
    const auto mask = maker.choose([&](const Value& value) {
      const auto dims = broadcast(value.dims, scores);
      return value.is_float() && !value.is_constant && dims && *dims == scores;
    });
    if (mask)
      s = maker.apply("Add", {s, *mask},
                      with(s, -s.largest() - mask->largest(), s.largest() + mask->largest()));
  }
  const Value p = maker.apply("Softmax", {s}, with(s, 0, 1),
                              [](auto& node) { set(node, "axis", int64_t{-1}); });
  Value o = maker.apply("MatMul", {p, v}, {.dims = v.dims, .low = v.low, .high = v.high});
  o = maker.apply("Transpose", {o}, {.dims = split, .low = v.low, .high = v.high}, [](auto& node) {
    set(node, "perm", std::vector<int64_t>{0, 2, 1, 3});
  });
  const auto whole = size_vector(
      maker, random.one_in(2) ? Extents{0, 0, width} : Extents{x->dims[0], x->dims[1], width});
  if (!whole) return true;
  maker.apply("Reshape", {o, *whole}, {.dims = x->dims, .low = v.low, .high = v.high});
  return true;
}

// Rows of a table of positions, as many as the sequence is long.
bool add_positions(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose(
      [](const Value& v) { return v.is_float() && v.rank() >= 2 && v.dims.back().constant(); });
  if (!x) return false;
  const Extent length = x->dims[static_cast<size_t>(x->rank()) - 2];
  const Value table = float_constant(maker, {length.largest() + random.below(3), x->dims.back()},
                                     -1, 1, random.one_in(2));
  const Extents dims = {length, x->dims.back()};
  Value rows{.dims = dims, .low = table.low, .high = table.high, .grid = table.grid};
  if (random.one_in(2)) {
    const auto end = size_vector(maker, {length});
    if (!end) return false;
    rows = maker.apply(
        "Slice", {table, integer_constant(maker, {0}), *end, integer_constant(maker, {0})}, rows);
  } else {
    const auto end = size_scalar(maker, length);
    if (!end) return false;
    const Value positions =
        maker.apply("Range", {scalar_constant(maker, 0), *end, scalar_constant(maker, 1)},
                    {.type = onnx::INT64,
                     .dims = {length},
                     .high = static_cast<double>(length.largest() - 1),
                     .grid = 0});
    rows = maker.apply("Gather", {table, positions}, rows);
  }
  maker.apply("Add", {*x, rows},
              {.dims = x->dims,
               .low = x->low + rows.low,
               .high = x->high + rows.high,
               .grid = x->exact() && rows.exact() ? std::max(x->grid, rows.grid) : -1});
  return true;
}

// A second half that is turned against the first.
bool rotate_halves(Maker& maker) {
  const auto x = maker.choose(
      [](const Value& v) { return v.is_float() && v.rank() >= 1 && divides(2, v.dims.back()); });
  if (!x) return false;
  Value half = *x;
  half.dims.back() = x->dims.back() / 2;
  const auto parts = maker.apply_all("Split", {*x}, {half, half}, [&](auto& node) {
    set(node, "axis", int64_t{-1});
    if (maker.opset() >= 18) set(node, "num_outputs", int64_t{2});
  });
  half.low = -x->high;
  half.high = -x->low;
  const Value minus = maker.apply("Neg", {parts[1]}, half);
  const double bound = x->largest();
  maker.apply("Concat", {minus, parts[0]},
              {.dims = x->dims, .low = -bound, .high = bound, .grid = x->grid},
              [](auto& node) { set(node, "axis", int64_t{-1}); });
  return true;
}

// No later position is seen.
bool causal_mask(Maker& maker) {
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.rank() >= 2 &&
           v.dims[static_cast<size_t>(v.rank()) - 1] == v.dims[static_cast<size_t>(v.rank()) - 2];
  });
  if (!x) return false;
  const Extent size = x->dims.back();
  const auto shape = size_vector(maker, {size, size});
  if (!shape) return false;
  const Value ones = maker.apply(
      "ConstantOfShape", {*shape}, {.dims = {size, size}, .low = 1, .high = 1, .grid = 0},
      [](auto& node) {
        auto& tensor = *attribute(node, "value", anneal_onnx::AttributeProto::TENSOR).mutable_t();
        tensor.set_data_type(onnx::FLOAT);
        tensor.add_dims(1);
        tensor.add_float_data(1);
      });
  const Value lower =
      maker.apply("Trilu", {ones}, {.dims = {size, size}, .low = 0, .high = 1, .grid = 0},
                  [](auto& node) { set(node, "upper", int64_t{0}); });
  const Value seen =
      maker.apply("Cast", {lower}, {.type = onnx::BOOL, .dims = {size, size}, .high = 1, .grid = 0},
                  [](auto& node) { set(node, "to", int64_t{onnx::BOOL}); });
  const double hidden = -8;
  maker.apply("Where", {seen, *x, number_constant(maker, hidden)},
              {.dims = x->dims,
               .low = std::min(x->low, hidden),
               .high = std::max(x->high, hidden),
               .grid = x->grid});
  return true;
}

constexpr Step kSteps[] = {
    {"gelu", gelu, 1},
    {"swish", swish, 1},
    {"layer_norm", layer_norm, 3},
    {"attention", attention, 3},
    {"add_positions", add_positions, 3},
    {"rotate_halves", rotate_halves, 1},
    {"causal_mask", causal_mask, 1},
};

}  // namespace

std::span<const Step> pattern_steps() { return kSteps; }

}  // namespace anneal::random_graphs
