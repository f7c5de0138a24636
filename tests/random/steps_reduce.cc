// Sums and the like over axes, normalizations, cumulative sums.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool has_axes(const Value& value) { return value.is_float() && value.rank() >= 1; }

bool reduce(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose(has_axes);
  if (!x) return false;
  const std::string op = random.one_of({"Sum", "Sum", "Mean", "Mean", "Max", "Min", "Prod", "L1",
                                        "L2", "SumSquare", "LogSumExp", "LogSum"});
  std::vector<int64_t> axes;
  Extents dims;
  Extent terms = 1;
  const bool keep = random.one_in(2), all = random.one_in(6);
  for (int i = 0; i < x->rank(); ++i) {
    const Extent size = x->dims[static_cast<size_t>(i)];
    const bool reduced = all || random.one_in(2) || (axes.empty() && i == x->rank() - 1);
    if (reduced) {
      axes.push_back(random.one_in(3) ? i - x->rank() : i);
      terms = terms * size;
    }
    if (!reduced || keep) dims.push_back(reduced ? Extent(1) : size);
  }
  Value result{.dims = dims};
  const double n = static_cast<double>(terms.largest()), bound = x->largest();
  if (op == "Sum" || op == "L1") {
    result.low = op == "L1" ? 0 : std::min(0., x->low) * n;
    result.high = op == "L1" ? bound * n : std::max(0., x->high) * n;
    result.grid = x->grid;
  } else if (op == "Mean" || op == "Max" || op == "Min") {
    result.low = x->low;
    result.high = x->high;
    result.grid = op == "Mean" ? -1 : x->grid;
  } else if (op == "SumSquare") {
    result.high = bound * bound * n;
    result.grid = x->exact() ? 2 * x->grid : -1;
  } else if (op == "L2") {
    if (x->low < 0.1) return false;
    result.high = bound * std::sqrt(n);
  } else if (op == "LogSumExp") {
    result.low = x->low;
    result.high = x->high + std::log(n);
  } else if (op == "LogSum") {
    if (x->low < 0.1) return false;
    result.low = std::log(x->low);
    result.high = std::log(bound * n);
  } else {
    if (bound > 1.01) return false;
    result.low = -1.1;
    result.high = 1.1;
  }
  const bool as_input = op == "Sum" || maker.opset() >= 18;
  std::vector<Value> inputs = {*x};
  if (as_input && !all) inputs.push_back(integer_constant(maker, axes));
  maker.apply(("Reduce" + op).c_str(), inputs, result, [&](auto& node) {
    if (!as_input && !all) set(node, "axes", axes);
    set(node, "keepdims", int64_t{keep});
  });
  return true;
}

bool softmax(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose(has_axes);
  if (!x) return false;
  const int64_t axis = random.one_in(2) ? -1 : random.below(x->rank());
  const bool log = random.one_in(4);
  Value result{.dims = x->dims, .low = log ? -2 * x->largest() - 9 : 0, .high = log ? 0. : 1.};
  maker.apply(log ? "LogSoftmax" : "Softmax", {*x}, result,
              [&](auto& node) { set(node, "axis", axis); });
  return true;
}

bool hardmax(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return has_axes(v) && v.exact(); });
  if (!x) return false;
  maker.apply("Hardmax", {*x}, {.dims = x->dims, .high = 1, .grid = 0},
              [&](auto& node) { set(node, "axis", int64_t{-1}); });
  return true;
}

bool cumulative(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return (v.is_float() || v.type == onnx::INT64) && v.rank() >= 1 && v.largest() < 1000;
  });
  if (!x) return false;
  const auto axis = static_cast<size_t>(random.below(x->rank()));
  const double n = static_cast<double>(x->dims[axis].largest());
  Value result = *x;
  result.contents.reset();
  result.low = std::min(0., x->low) * n;
  result.high = std::max(0., x->high) * n;
  maker.apply("CumSum", {*x, scalar_constant(maker, static_cast<int64_t>(axis))}, result,
              [&](auto& node) {
                set(node, "exclusive", int64_t{random.one_in(3)});
                set(node, "reverse", int64_t{random.one_in(3)});
              });
  return true;
}

// Values of a normalization are within the square root of how many there are.
Value normal(const Value& x, double terms) {
  const double bound = 2 * std::sqrt(terms) + 2;
  return {.dims = x.dims, .low = -bound, .high = bound};
}

bool normalize_channels(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose(
      [](const Value& v) { return v.is_float() && v.rank() >= 2 && v.dims[1].constant(); });
  if (!x) return false;
  const Extent channels = x->dims[1];
  const auto each = [&](double low, double high) {
    return float_constant(maker, {channels}, low, high, false);
  };
  Value result = normal(*x, static_cast<double>(product(x->dims).largest()));
  switch (random.below(3)) {
    case 0: {
      const double bound = (x->largest() + 1) * 3 + 1;
      result.low = -bound;
      result.high = bound;
      maker.apply("BatchNormalization", {*x, each(.5, 1.5), each(-1, 1), each(-1, 1), each(.5, 2)},
                  result);
      break;
    }
    case 1:
      if (x->rank() < 3) return false;
      maker.apply("InstanceNormalization", {*x, each(.5, 1.5), each(-1, 1)}, result,
                  [](auto& node) { set(node, "epsilon", 1e-2f); });
      break;
    default: {
      if (x->rank() < 3 || maker.opset() < 21) return false;
      const int64_t groups = channels.in[0] % 2 == 0 && random.one_in(2) ? 2 : 1;
      maker.apply("GroupNormalization", {*x, each(.5, 1.5), each(-1, 1)}, result, [&](auto& node) {
        set(node, "num_groups", groups);
        set(node, "epsilon", 1e-2f);
      });
    }
  }
  return true;
}

bool normalize_last(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x =
      maker.choose([](const Value& v) { return has_axes(v) && v.dims.back().constant(); });
  if (!x) return false;
  const Value scale = float_constant(maker, {x->dims.back()}, .5, 1.5, false);
  std::vector<Value> inputs = {*x, scale};
  if (random.one_in(2)) inputs.push_back(float_constant(maker, {x->dims.back()}, -1, 1, false));
  maker.apply("LayerNormalization", inputs, normal(*x, static_cast<double>(x->dims.back().in[0])),
              [&](auto& node) { set(node, "epsilon", 1e-2f); });
  return true;
}

bool other_normalization(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() >= 3; });
  if (!x) return false;
  if (x->rank() == 4 && random.one_in(2)) {
    maker.apply("LRN", {*x}, {.dims = x->dims, .low = x->low, .high = x->high}, [](auto& node) {
      set(node, "size", int64_t{3});
      set(node, "alpha", .5f);
    });
    return true;
  }
  if (x->low < .1) return false;
  const int64_t p = random.between(1, 2), axis = random.below(x->rank());
  maker.apply("LpNormalization", {*x}, {.dims = x->dims, .low = 0, .high = 1}, [&](auto& node) {
    set(node, "p", p);
    set(node, "axis", axis);
  });
  return true;
}

constexpr Step kSteps[] = {
    {"reduce", reduce, 8},
    {"softmax", softmax, 4},
    {"hardmax", hardmax, 1},
    {"cumulative", cumulative, 2},
    {"normalize_channels", normalize_channels, 3},
    {"normalize_last", normalize_last, 3},
    {"other_normalization", other_normalization, 1},
};

}  // namespace

std::span<const Step> reduce_steps() { return kSteps; }

}  // namespace anneal::random_graphs
