// Functions of floats, element by element.
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool is_float(const Value& value) { return value.is_float(); }

// A function of one operand that grows or falls, so that its bounds are those of its operand's.
struct Monotone {
  const char* op;
  double (*f)(double);
  double low, high;  // of the operand
  bool keeps_grid = false;
};
constexpr Monotone kMonotone[] = {
    {"Relu", [](double x) { return std::max(x, 0.); }, -1e9, 1e9, true},
    {"Neg", [](double x) { return -x; }, -1e9, 1e9, true},
    {"Identity", [](double x) { return x; }, -1e9, 1e9, true},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -1e9, 1e9},
    {"Tanh", [](double x) { return std::tanh(x); }, -1e9, 1e9},
    {"Softplus", [](double x) { return x > 30 ? x : std::log1p(std::exp(x)); }, -1e9, 1e9},
    {"Softsign", [](double x) { return x / (1 + std::abs(x)); }, -1e9, 1e9},
    {"Elu", [](double x) { return x > 0 ? x : std::expm1(x); }, -1e9, 1e9},
    {"Selu", [](double x) { return 1.06 * (x > 0 ? x : 1.68 * std::expm1(x)); }, -1e9, 1e9},
    {"Celu", [](double x) { return x > 0 ? x : std::expm1(x); }, -1e9, 1e9},
    {"HardSigmoid", [](double x) { return std::clamp(x / 5 + .5, 0., 1.); }, -1e9, 1e9},
    {"Erf", [](double x) { return std::erf(x); }, -1e9, 1e9},
    {"Atan", [](double x) { return std::atan(x); }, -1e9, 1e9},
    {"Asinh", [](double x) { return std::asinh(x); }, -1e9, 1e9},
    {"Exp", [](double x) { return std::exp(x); }, -1e9, 3},
    {"Sinh", [](double x) { return std::sinh(x); }, -3, 3},
    {"Log", [](double x) { return std::log(x); }, 0.1, 1e9},
    {"Sqrt", [](double x) { return std::sqrt(x); }, 0.05, 1e9},
    {"Reciprocal", [](double x) { return 1 / x; }, 0.2, 1e9},
    {"Asin", [](double x) { return std::asin(x); }, -0.9, 0.9},
    {"Acos", [](double x) { return std::acos(x); }, -0.9, 0.9},
    {"Atanh", [](double x) { return std::atanh(x); }, -0.9, 0.9},
    {"Acosh", [](double x) { return std::acosh(x); }, 1.1, 1e9},
    {"Tan", [](double x) { return std::tan(x); }, -1.2, 1.2},
};

// Of steps, so that a result depends on which of two numbers is larger.
bool rounding(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.exact(); });
  if (!x) return false;
  const char* op = maker.random().one_of({"Floor", "Ceil", "Round", "Sign"});
  Value y{.dims = x->dims, .low = std::floor(x->low), .high = std::ceil(x->high), .grid = 0};
  if (op[0] == 'S') y = {.dims = x->dims, .low = -1, .high = 1, .grid = 0};
  maker.apply(op, {*x}, y);
  return true;
}

Value monotone(Maker& maker, const Value& x, const Monotone& function) {
  const double a = function.f(std::clamp(x.low, -50., 50.));
  const double b = function.f(std::clamp(x.high, -50., 50.));
  return maker.apply(function.op, {x},
                     {.dims = x.dims,
                      .low = std::min(a, b) - (function.keeps_grid ? 0 : 1e-3),
                      .high = std::max(a, b) + (function.keeps_grid ? 0 : 1e-3),
                      .grid = function.keeps_grid ? x.grid : -1});
}

bool function_of_one(Maker& maker) {
  const Monotone& function = kMonotone[maker.random().below(std::size(kMonotone))];
  const auto x = maker.choose([&](const Value& v) {
    return v.is_float() && v.low >= function.low && v.high <= function.high;
  });
  if (!x) return false;
  monotone(maker, *x, function);
  return true;
}

// Functions that neither grow nor fall everywhere, or have attributes.
bool other_function(Maker& maker) {
  const auto x = maker.choose(is_float);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  Value y{.dims = x->dims, .low = std::min(x->low, -1.), .high = std::max(x->high, 1.)};
  const bool new_ops = maker.opset() >= 20;
  switch (random.below(new_ops ? 12 : 10)) {
    case 0:
      y = {.dims = x->dims, .low = 0, .high = x->largest(), .grid = x->grid};
      maker.apply("Abs", {*x}, y);
      break;
    case 1:
      maker.apply("Sin", {*x}, {.dims = x->dims, .low = -1, .high = 1});
      break;
    case 2:
      maker.apply("Cos", {*x}, {.dims = x->dims, .low = -1, .high = 1});
      break;
    case 3:
      maker.apply("LeakyRelu", {*x}, y, [&](auto& node) { set(node, "alpha", .125f); });
      break;
    case 4:
      maker.apply("HardSwish", {*x}, y);
      break;
    case 5: {
      const float alpha = random.one_in(2) ? 1.f : .5f;
      if (!x->exact()) return false;
      y.grid = x->grid;
      y.low = 0;
      maker.apply("ThresholdedRelu", {*x}, y, [&](auto& node) { set(node, "alpha", alpha); });
      break;
    }
    case 6:
      if (!x->exact()) return false;
      y.grid = x->grid + 1;
      y.low -= 1;
      y.high += 1;
      maker.apply("Shrink", {*x}, y, [&](auto& node) {
        set(node, "lambd", 1.f);
        set(node, "bias", .5f);
      });
      break;
    case 7: {
      const double low = random.between(-3, 0), high = random.between(1, 3);
      y = {.dims = x->dims,
           .low = std::clamp(x->low, low, high),
           .high = std::clamp(x->high, low, high),
           .grid = x->grid};
      const Value none;
      const int64_t which = random.below(3);
      if (which == 1) y.high = std::max(x->high, low);
      if (which == 2) y.low = std::min(x->low, high);
      maker.apply("Clip",
                  {*x, which == 2 ? none : number_constant(maker, low),
                   which == 1 ? none : number_constant(maker, high)},
                  y);
      break;
    }
    case 8:
      maker.apply("Cosh",
                  {maker.apply("Clip", {*x, number_constant(maker, -2), number_constant(maker, 2)},
                               {.dims = x->dims, .low = -2, .high = 2, .grid = x->grid})},
                  {.dims = x->dims, .low = 1, .high = 3.8});
      break;
    case 9: {
      const Value slope = float_constant(
          maker, {x->rank() > 1 && x->dims[1].constant() ? x->dims[1] : Extent(1)}, 0, .5, true);
      Value s = slope;
      if (x->rank() > 2 && !slope.dims[0].is(1)) {
        Extents dims = {slope.dims[0]};
        for (int i = 2; i < x->rank(); ++i) dims.push_back(1);
        s = float_constant(maker, dims, 0, .5, true);
      } else if (x->rank() == 2 && !x->dims[1].constant()) {
        s = float_constant(maker, {1}, 0, .5, true);
      }
      if (x->rank() == 0) return false;
      maker.apply("PRelu", {*x, s}, y);
      break;
    }
    case 10:
      maker.apply("Gelu", {*x}, y, [&](auto& node) {
        set(node, "approximate", std::string(random.one_in(2) ? "tanh" : "none"));
      });
      break;
    default:
      maker.apply("Mish", {*x}, y);
  }
  return true;
}

// Another operand that fits: a value, or a constant.
std::optional<Value> partner(Maker& maker, const Value& x, double low, double high) {
  RandomNumbers& random = maker.random();
  if (!random.one_in(3)) {
    const auto y = maker.choose([&](const Value& v) {
      const auto dims = v.is_float() ? broadcast(x.dims, v.dims) : std::nullopt;
      return dims && is_small(*dims) && v.low >= low && v.high <= high;
    });
    if (y) return y;
  }
  if (random.one_in(3))
    return number_constant(maker, random.uniform(std::max(low, -2.), std::min(high, 2.)));
  Extents dims;
  for (const Extent& dim : x.dims)
    dims.push_back(dim.constant() && !random.one_in(3) ? dim : Extent(1));
  while (!dims.empty() && random.one_in(3)) dims.erase(dims.begin());
  return float_constant(maker, dims, std::max(low, -2.), std::min(high, 2.), random.one_in(2));
}

bool arithmetic(Maker& maker) {
  const auto x = maker.choose(is_float);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const char* op = random.one_of({"Add", "Add", "Sub", "Mul", "Mul", "Div", "Min", "Max"});
  const bool divides = op[0] == 'D';
  const auto y = partner(maker, *x, divides ? 0.2 : -1e9, 1e9);
  if (!y) return false;
  const bool exchanged = !divides && random.one_in(2);
  const Value& a = exchanged ? *y : *x;
  const Value& b = exchanged ? *x : *y;
  const auto dims = broadcast(a.dims, b.dims);
  if (!dims || !is_small(*dims)) return false;
  Value result{.dims = *dims};
  const int grid = a.exact() && b.exact() ? std::max(a.grid, b.grid) : -1;
  const auto of_corners = [&](auto f) {
    const double corners[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low),
                              f(a.high, b.high)};
    result.low = *std::ranges::min_element(corners);
    result.high = *std::ranges::max_element(corners);
  };
  result.grid = grid;
  switch (op[1]) {
    case 'd':
      of_corners([](double p, double q) { return p + q; });
      break;
    case 'u':
      if (op[0] == 'S') {
        of_corners([](double p, double q) { return p - q; });
      } else {
        of_corners([](double p, double q) { return p * q; });
        result.grid = grid < 0 ? -1 : a.grid + b.grid;
      }
      break;
    case 'i':
      if (divides) {
        of_corners([](double p, double q) { return p / q; });
        result.grid = -1;
      } else {
        of_corners([](double p, double q) { return std::min(p, q); });
      }
      break;
    default:
      of_corners([](double p, double q) { return std::max(p, q); });
  }
  maker.apply(op, {a, b}, result);
  return true;
}

bool several_operands(Maker& maker) {
  const auto x = maker.choose(is_float);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const char* op = random.one_of({"Sum", "Mean", "Max", "Min"});
  std::vector<Value> operands = {*x};
  Value result = *x;
  for (int64_t i = random.between(0, 2); i > 0; --i) {
    const auto y = partner(maker, result, -1e9, 1e9);
    const auto dims = y ? broadcast(result.dims, y->dims) : std::nullopt;
    if (!dims || !is_small(*dims)) continue;
    operands.push_back(*y);
    const bool sum = op[0] == 'S';
    result = {.dims = *dims,
              .low = sum ? result.low + y->low : std::min(result.low, y->low),
              .high = sum ? result.high + y->high : std::max(result.high, y->high),
              .grid = result.exact() && y->exact() ? std::max(result.grid, y->grid) : -1};
  }
  if (op[1] == 'e') result.grid = -1;
  result.contents.reset();
  maker.apply(op, operands, result);
  return true;
}

bool power(Maker& maker) {
  RandomNumbers& random = maker.random();
  const double exponent = random.one_of({2., 2., 3., .5, -1., -.5, 1., 0.});
  const bool positive = exponent != 2 && exponent != 3 && exponent != 1;
  const auto x = maker.choose([&](const Value& v) {
    return v.is_float() && (!positive || v.low >= .2) && v.largest() <= 10;
  });
  if (!x) return false;
  const double a = std::pow(x->low, exponent), b = std::pow(x->high, exponent);
  Value y{.dims = x->dims, .low = std::min(a, b) - .01, .high = std::max(a, b) + .01};
  if (exponent == 2) y.low = -.01;
  maker.apply("Pow", {*x, number_constant(maker, exponent)}, y);
  return true;
}

// Comparisons of exact numbers, and what booleans become.
bool compare(Maker& maker) {
  const auto exact = [](const Value& v) { return v.is_float() && v.exact(); };
  const auto x = maker.choose(exact);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const auto y = maker.choose([&](const Value& v) {
    const auto dims = exact(v) ? broadcast(x->dims, v.dims) : std::nullopt;
    return dims && is_small(*dims);
  });
  const Value other = y && random.one_in(2) ? *y : number_constant(maker, random.between(-1, 1));
  const char* op = random.one_of({"Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"});
  maker.apply(op, {*x, other},
              {.type = onnx::BOOL, .dims = *broadcast(x->dims, other.dims), .high = 1, .grid = 0});
  return true;
}

bool logic(Maker& maker) {
  const auto boolean = [](const Value& v) { return v.type == onnx::BOOL; };
  const auto x = maker.choose(boolean);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const auto y = maker.choose([&](const Value& v) {
    const auto dims = boolean(v) ? broadcast(x->dims, v.dims) : std::nullopt;
    return dims && is_small(*dims);
  });
  Value result{.type = onnx::BOOL, .dims = x->dims, .high = 1, .grid = 0};
  if (!y || random.one_in(4)) {
    maker.apply("Not", {*x}, result);
    return true;
  }
  result.dims = *broadcast(x->dims, y->dims);
  maker.apply(random.one_of({"And", "Or", "Xor"}), {*x, *y}, result);
  return true;
}

bool where(Maker& maker) {
  const auto condition = maker.choose([](const Value& v) { return v.type == onnx::BOOL; });
  if (!condition) return false;
  const auto x = maker.choose([&](const Value& v) {
    const auto dims = v.is_float() ? broadcast(condition->dims, v.dims) : std::nullopt;
    return dims && is_small(*dims);
  });
  if (!x) return false;
  const Extents dims = *broadcast(condition->dims, x->dims);
  const auto y = partner(maker, {.dims = dims}, -1e9, 1e9);
  const auto all = broadcast(dims, y->dims);
  if (!all || !is_small(*all)) return false;
  const Value& a = maker.random().one_in(2) ? *x : *y;
  const Value& b = &a == &*x ? *y : *x;
  maker.apply("Where", {*condition, a, b},
              {.dims = *all,
               .low = std::min(x->low, y->low),
               .high = std::max(x->high, y->high),
               .grid = x->exact() && y->exact() ? std::max(x->grid, y->grid) : -1});
  return true;
}

bool test_for_nan(Maker& maker) {
  const auto x = maker.choose(is_float);
  if (!x) return false;
  maker.apply(maker.random().one_of({"IsNaN", "IsInf"}), {*x},
              {.type = onnx::BOOL, .dims = x->dims, .high = 1, .grid = 0});
  return true;
}

constexpr Step kSteps[] = {
    {"function_of_one", function_of_one, 10},
    {"other_function", other_function, 5},
    {"rounding", rounding, 2},
    {"arithmetic", arithmetic, 14},
    {"several_operands", several_operands, 2},
    {"power", power, 1},
    {"compare", compare, 3},
    {"logic", logic, 2},
    {"where", where, 4},
    {"test_for_nan", test_for_nan, 1},
};

}  // namespace

std::optional<Extents> broadcast(const Extents& a, const Extents& b) {
  Extents result;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const Extent p = i < a.size() ? a[a.size() - 1 - i] : Extent(1);
    const Extent q = i < b.size() ? b[b.size() - 1 - i] : Extent(1);
    if (p != q && !p.is(1) && !q.is(1)) return std::nullopt;
    result.insert(result.begin(), p.is(1) ? q : p);
  }
  return result;
}

Value unary(Maker& maker, const Value& x) {
  return monotone(maker, x, kMonotone[maker.random().one_of({0, 1, 3, 4, 6})]);
}

std::span<const Step> elementwise_steps() { return kSteps; }

}  // namespace anneal::random_graphs
