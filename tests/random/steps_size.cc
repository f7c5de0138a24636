// Arithmetic on sizes, as exporters write it before Reshape, Expand and the like.
#include <cmath>

#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

bool holds_sizes(const Value& value) {
  return value.type == onnx::INT64 && value.contents && value.rank() <= 1 && !value.is_constant;
}

Value sizes(const Extents& dims, Extents contents) {
  Value result{.type = onnx::INT64, .dims = dims, .grid = 0};
  for (const Extent& each : contents) {
    result.low = std::min(result.low, static_cast<double>(each.least()));
    result.high = std::max(result.high, static_cast<double>(each.largest()));
  }
  result.contents = std::move(contents);
  return result;
}

Value shape_of(Maker& maker, const Value& x) {
  return maker.apply("Shape", {x}, sizes({x.rank()}, x.dims));
}

// One size of a value, as a scalar or a vector of one.
Value size_of_axis(Maker& maker, const Value& x, size_t axis, bool scalar) {
  RandomNumbers& random = maker.random();
  const Extents contents = {x.dims[axis]};
  const auto at = static_cast<int64_t>(axis);
  if (!scalar && maker.opset() >= 15 && random.one_in(3))
    return maker.apply("Shape", {x}, sizes({1}, contents), [&](auto& node) {
      set(node, "start", at);
      set(node, "end", at + 1);
    });
  const Value shape = shape_of(maker, x);
  if (!scalar && random.one_in(3))
    return maker.apply("Slice",
                       {shape, integer_constant(maker, {at}), integer_constant(maker, {at + 1})},
                       sizes({1}, contents));
  const Value index = scalar ? scalar_constant(maker, at) : integer_constant(maker, {at});
  return maker.apply("Gather", {shape, index}, sizes(index.dims, contents));
}

// A size of a value in each binding.
struct Found {
  Value value;
  size_t axis = 0;
};

std::optional<Found> find_size(Maker& maker, const std::function<bool(const Extent&)>& fits) {
  const auto value = maker.choose(
      [&](const Value& v) { return !v.is_constant && std::ranges::any_of(v.dims, fits); });
  if (!value) return std::nullopt;
  const auto found = std::ranges::find_if(value->dims, fits);
  return Found{*value, static_cast<size_t>(found - value->dims.begin())};
}

// The size and a constant make it.
std::optional<Value> by_constant(Maker& maker, const Extent& wanted, bool scalar) {
  for (int64_t constant = -8; constant <= 8; ++constant) {
    if (constant == 0) continue;
    const auto with = [&](const char* op, auto f) -> std::optional<Value> {
      const auto found =
          find_size(maker, [&](const Extent& e) { return !e.constant() && f(e) == wanted; });
      if (!found) return std::nullopt;
      const Value size = size_of_axis(maker, found->value, found->axis, scalar);
      const Value number =
          scalar ? scalar_constant(maker, constant) : integer_constant(maker, {constant});
      return maker.apply(op, {size, number}, sizes(size.dims, {wanted}));
    };
    if (const auto sum = with("Add", [&](const Extent& e) { return e + constant; })) return sum;
    if (constant < 2) continue;
    if (const auto times = with("Mul", [&](const Extent& e) { return e * constant; })) return times;
    if (const auto part = with("Div", [&](const Extent& e) { return e / constant; })) return part;
  }
  return std::nullopt;
}

// The remainder of a constant without a size.
std::optional<Value> by_rest(Maker& maker, const Extent& wanted, bool scalar) {
  const auto found =
      find_size(maker, [&](const Extent& e) { return !e.constant() && (wanted + e).constant(); });
  if (!found) return std::nullopt;
  const int64_t whole = (wanted + found->value.dims[found->axis]).in[0];
  const Value size = size_of_axis(maker, found->value, found->axis, scalar);
  const Value number = scalar ? scalar_constant(maker, whole) : integer_constant(maker, {whole});
  return maker.apply("Sub", {number, size}, sizes(size.dims, {wanted}));
}

// Two sizes make it.
std::optional<Value> by_two(Maker& maker, const Extent& wanted, bool scalar) {
  for (const Value& first : maker.values()) {
    for (size_t axis = 0; axis < first.dims.size() && !first.is_constant; ++axis) {
      const Extent a = first.dims[axis];
      if (a.constant()) continue;
      const auto with = [&](const char* op, auto f) -> std::optional<Value> {
        const auto found =
            find_size(maker, [&](const Extent& e) { return !e.constant() && f(a, e) == wanted; });
        if (!found) return std::nullopt;
        const Value p = size_of_axis(maker, Value(first), axis, scalar);
        const Value q = size_of_axis(maker, found->value, found->axis, scalar);
        return maker.apply(op, {p, q}, sizes(p.dims, {wanted}));
      };
      if (const auto times = with("Mul", [](const Extent& p, const Extent& q) { return p * q; }))
        return times;
      if (const auto sum = with("Add", [](const Extent& p, const Extent& q) { return p + q; }))
        return sum;
      if (const auto rest = with("Sub", [](const Extent& p, const Extent& q) { return p - q; }))
        return rest;
    }
  }
  return std::nullopt;
}

std::optional<Value> one_size(Maker& maker, const Extent& wanted, bool scalar) {
  if (wanted.constant() && !maker.random().one_in(12))
    return scalar ? scalar_constant(maker, wanted.in[0]) : integer_constant(maker, {wanted.in[0]});
  const auto computed = maker.choose([&](const Value& v) {
    return holds_sizes(v) && v.rank() == (scalar ? 0 : 1) && *v.contents == Extents{wanted};
  });
  if (computed) return computed;
  if (const auto found = find_size(maker, [&](const Extent& e) { return e == wanted; }))
    return size_of_axis(maker, found->value, found->axis, scalar);
  if (wanted.constant())
    return scalar ? scalar_constant(maker, wanted.in[0]) : integer_constant(maker, {wanted.in[0]});
  if (const auto found = by_constant(maker, wanted, scalar)) return found;
  if (const auto found = by_rest(maker, wanted, scalar)) return found;
  return by_two(maker, wanted, scalar);
}

// Steps that leave results for others to use.

bool shape(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.rank() >= 1; });
  if (!x) return false;
  if (maker.random().one_in(4))
    maker.apply("Size", {*x}, sizes({}, {product(x->dims)}));
  else
    shape_of(maker, *x);
  return true;
}

bool size_arithmetic(Maker& maker) {
  const auto x = maker.choose(holds_sizes);
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const std::string op = random.one_of({"Add", "Sub", "Mul", "Div", "Min", "Max", "Mod"});
  const auto y = maker.choose([&](const Value& v) {
    return holds_sizes(v) && v.dims == x->dims && (op != "Sub" || v.low >= 0);
  });
  const bool constant = !y || random.one_in(2) || ((op == "Div" || op == "Mod") && y->low <= 0);
  const Extent number = random.between(1, 3);
  Extents contents;
  for (size_t i = 0; i < x->contents->size(); ++i) {
    const Extent a = (*x->contents)[i], b = constant ? number : (*y->contents)[i];
    if (a.least() < 0 || a.largest() > 5000) return false;
    if ((op == "Div" || op == "Mod") && b.least() < 1) return false;
    contents.push_back(combine(a, b, [&](int64_t p, int64_t q) {
      return op == "Add"   ? p + q
             : op == "Sub" ? p - q
             : op == "Mul" ? p * q
             : op == "Div" ? p / q
             : op == "Min" ? std::min(p, q)
             : op == "Max" ? std::max(p, q)
                           : p % q;
    }));
  }
  const Value other = constant ? scalar_constant(maker, number.in[0]) : *y;
  maker.apply(op.c_str(), {*x, other}, sizes(x->dims, contents));
  return true;
}

// Through floats, as older exporters compute sizes of pictures.
bool size_by_floats(Maker& maker) {
  const auto x =
      maker.choose([](const Value& v) { return holds_sizes(v) && v.low >= 0 && v.high < 1000; });
  if (!x) return false;
  RandomNumbers& random = maker.random();
  const double factor = random.one_of({2., .5, 1.5});
  Value real{.dims = x->dims, .low = 0, .high = 30, .grid = 1};
  if (x->high * factor > 30) return false;
  const auto to = [](int64_t type) { return [type](auto& node) { set(node, "to", type); }; };
  const Value cast = maker.apply("Cast", {*x}, real, to(onnx::FLOAT));
  const Value scaled = maker.apply("Mul", {cast, number_constant(maker, factor)}, real);
  const bool up = random.one_in(2);
  Value rounded = real;
  rounded.grid = 0;
  rounded = maker.apply(up ? "Ceil" : "Floor", {scaled}, rounded);
  Extents contents;
  for (const Extent& each : *x->contents)
    contents.push_back(combine(each, 0, [&](int64_t p, int64_t) {
      const double product = static_cast<double>(p) * factor;
      return static_cast<int64_t>(up ? std::ceil(product) : std::floor(product));
    }));
  maker.apply("Cast", {rounded}, sizes(x->dims, contents), to(onnx::INT64));
  return true;
}

bool constant_of_shape(Maker& maker) {
  const auto shape = maker.choose([](const Value& v) {
    return holds_sizes(v) && v.rank() == 1 && v.low >= 0 && v.contents->size() <= 4 &&
           is_small(*v.contents);
  });
  if (!shape) return false;
  const double number = maker.random().one_of({0., 1., .5});
  maker.apply(
      "ConstantOfShape", {*shape},
      {.dims = *shape->contents, .low = number, .high = number, .grid = 1}, [&](auto& node) {
        auto& tensor = *attribute(node, "value", anneal_onnx::AttributeProto::TENSOR).mutable_t();
        tensor.set_data_type(onnx::FLOAT);
        tensor.add_dims(1);
        tensor.add_float_data(static_cast<float>(number));
      });
  return true;
}

bool range(Maker& maker) {
  RandomNumbers& random = maker.random();
  std::optional<Value> limit = maker.choose(
      [](const Value& v) { return holds_sizes(v) && v.rank() == 0 && is_small(*v.contents); });
  if (!limit || random.one_in(2)) {
    const auto x = maker.choose([](const Value& v) { return v.rank() >= 1 && !v.is_constant; });
    if (!x) return false;
    limit = size_of_axis(maker, *x, static_cast<size_t>(random.below(x->rank())), true);
  }
  if (!is_small(*limit->contents)) return false;
  const Extent end = (*limit->contents)[0];
  const int64_t step = random.one_of({1, 1, 1, 2});
  const Value result{.type = onnx::INT64,
                     .dims = {(end + (step - 1)) / step},
                     .high = static_cast<double>(end.largest() - 1),
                     .grid = 0};
  maker.apply("Range", {scalar_constant(maker, 0), *limit, scalar_constant(maker, step)}, result);
  return true;
}

// -1 keeps the size, as PyTorch writes Expand.
bool expand_by_where(Maker& maker) {
  const auto x =
      maker.choose([](const Value& v) { return v.is_float() && v.rank() >= 1 && v.rank() <= 3; });
  if (!x) return false;
  const Value shape = shape_of(maker, *x);
  const auto rank = static_cast<int64_t>(x->rank());
  const Value ones = maker.apply(
      "ConstantOfShape", {integer_constant(maker, {rank})},
      sizes({rank}, Extents(static_cast<size_t>(rank), 1)), [](auto& node) {
        auto& tensor = *attribute(node, "value", anneal_onnx::AttributeProto::TENSOR).mutable_t();
        tensor.set_data_type(onnx::INT64);
        tensor.add_dims(1);
        tensor.add_int64_data(1);
      });
  const Value equal = maker.apply("Equal", {shape, ones},
                                  {.type = onnx::BOOL, .dims = {rank}, .high = 1, .grid = 0});
  const Value target = maker.apply("Where", {equal, ones, shape}, sizes({rank}, x->dims));
  Value result = *x;
  result.contents.reset();
  maker.apply("Expand", {*x, target}, result);
  return true;
}

bool eye_like(Maker& maker) {
  const auto x = maker.choose([](const Value& v) { return v.is_float() && v.rank() == 2; });
  if (!x) return false;
  maker.apply("EyeLike", {*x}, {.dims = x->dims, .high = 1, .grid = 0});
  return true;
}

constexpr Step kSteps[] = {
    {"shape", shape, 4},
    {"size_arithmetic", size_arithmetic, 6},
    {"size_by_floats", size_by_floats, 1},
    {"constant_of_shape", constant_of_shape, 4},
    {"range", range, 4},
    {"expand_by_where", expand_by_where, 1},
    {"eye_like", eye_like, 1},
};

}  // namespace

std::optional<Value> size_scalar(Maker& maker, const Extent& element) {
  return one_size(maker, element, true);
}

std::optional<Value> size_vector(Maker& maker, const Extents& elements) {
  const bool constant = std::ranges::all_of(elements, [](const Extent& e) { return e.constant(); });
  if (elements.empty() || (constant && !maker.random().one_in(8))) {
    std::vector<int64_t> numbers;
    for (const Extent& element : elements) numbers.push_back(element.in[0]);
    return integer_constant(maker, numbers);
  }
  std::vector<Value> parts;
  for (const Extent& element : elements) {
    const bool by_scalar = maker.random().one_in(2);
    auto part = one_size(maker, element, by_scalar);
    if (!part) return std::nullopt;
    if (by_scalar)
      part = maker.apply("Unsqueeze", {*part, integer_constant(maker, {0})}, sizes({1}, {element}));
    parts.push_back(*part);
  }
  if (parts.size() == 1) return parts[0];
  return maker.apply("Concat", parts, sizes({static_cast<int64_t>(parts.size())}, elements),
                     [](auto& node) { set(node, "axis", int64_t{0}); });
}

std::span<const Step> size_steps() { return kSteps; }

}  // namespace anneal::random_graphs
