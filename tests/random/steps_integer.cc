// Integers: casts, arithmetic, bits.
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/tests/random/steps.h"

namespace anneal::random_graphs {
namespace {

constexpr double kLimit = 1 << 20;

bool is_integer(const Value& value) {
  return value.type == onnx::INT64 || value.type == onnx::INT32;
}

bool cast(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) { return v.exact() && v.largest() <= 1000; });
  if (!x) return false;
  Value y{.type = random.one_of({onnx::INT64, onnx::INT32, onnx::FLOAT, onnx::FLOAT, onnx::BOOL}),
          .dims = x->dims};
  y.grid = y.type == onnx::FLOAT && x->is_float() ? x->grid : 0;
  if (y.type == onnx::BOOL) {
    y.high = 1;
  } else {
    y.low = x->low;
    y.high = x->high;
    if (y.type != onnx::FLOAT || !x->is_float()) {
      y.low = std::trunc(x->low);
      y.high = std::trunc(x->high);
    }
  }
  maker.apply("Cast", {*x}, y, [&](auto& node) { set(node, "to", int64_t{y.type}); });
  return true;
}

// There and back: to a type of fewer bits, which keeps these numbers.
bool cast_twice(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) {
    return v.is_float() && v.exact() && v.largest() * std::ldexp(1, v.grid) < 200;
  });
  if (!x) return false;
  const int type = random.one_of({onnx::FLOAT16, onnx::BFLOAT16, onnx::DOUBLE});
  Value between = *x;
  between.type = type;
  between.contents.reset();
  const Value y =
      maker.apply("Cast", {*x}, between, [&](auto& node) { set(node, "to", int64_t{type}); });
  Value back = *x;
  maker.apply("Cast", {y}, back, [&](auto& node) { set(node, "to", int64_t{onnx::FLOAT}); });
  return true;
}

bool integer_arithmetic(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x = maker.choose([](const Value& v) { return is_integer(v) && v.largest() < 1000; });
  if (!x) return false;
  const std::string op = random.one_of(
      {"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Abs", "Less", "Equal"});
  Value result{.type = x->type, .dims = x->dims, .grid = 0};
  if (op == "Neg" || op == "Abs") {
    result.low = op == "Neg" ? -x->high : 0;
    result.high = op == "Neg" ? -x->low : x->largest();
    maker.apply(op.c_str(), {*x}, result);
    return true;
  }
  const bool divides = op == "Div" || op == "Mod";
  const auto y = maker.choose([&](const Value& v) {
    const auto dims = v.type == x->type ? broadcast(x->dims, v.dims) : std::nullopt;
    return dims && is_small(*dims) && v.largest() < 1000 && (!divides || v.low > 0);
  });
  const Value other = y && !random.one_in(3)
                          ? *y
                          : scalar_constant(maker, random.between(divides ? 1 : -2, 4), x->type);
  result.dims = *broadcast(x->dims, other.dims);
  const double bound =
      op == "Mul" ? x->largest() * other.largest() : x->largest() + other.largest();
  result.low = -bound;
  result.high = bound;
  if (op == "Mod") {
    result.low = 0;
    result.high = other.high - 1;
  }
  if (op == "Div") {
    result.low = std::min(x->low, 0.);
    result.high = std::max(x->high, 0.);
  }
  if (op == "Less" || op == "Equal")
    result = {.type = onnx::BOOL, .dims = result.dims, .high = 1, .grid = 0};
  if (result.largest() > kLimit) return false;
  maker.apply(op.c_str(), {*x, other}, result);
  return true;
}

bool bits(Maker& maker) {
  RandomNumbers& random = maker.random();
  const auto x =
      maker.choose([](const Value& v) { return is_integer(v) && v.low >= 0 && v.largest() < 250; });
  if (!x || maker.opset() < 18) return false;
  const char* op =
      random.one_of({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"});
  Value result{.type = x->type, .dims = x->dims, .high = 255, .grid = 0};
  if (op[7] == 'N') {
    result.low = -x->high - 1;
    result.high = -1;
    maker.apply(op, {*x}, result);
  } else if (op[3] == 'S') {
    Value byte{.type = onnx::UINT8, .dims = x->dims, .high = 255, .grid = 0};
    const Value bytes =
        maker.apply("Cast", {*x}, byte, [](auto& node) { set(node, "to", int64_t{onnx::UINT8}); });
    const Value shift = scalar_constant(maker, random.between(0, 3), onnx::UINT8);
    maker.apply(op, {bytes, shift}, byte, [&](auto& node) {
      set(node, "direction", std::string(random.one_in(2) ? "LEFT" : "RIGHT"));
    });
  } else {
    maker.apply(op, {*x, scalar_constant(maker, random.between(0, 255), x->type)}, result);
  }
  return true;
}

constexpr Step kSteps[] = {
    {"cast", cast, 5},
    {"cast_twice", cast_twice, 1},
    {"integer_arithmetic", integer_arithmetic, 4},
    {"bits", bits, 1},
};

}  // namespace

std::span<const Step> integer_steps() { return kSteps; }

}  // namespace anneal::random_graphs
