// Random numbers. Element i is made of number i + 1 of the generator SplitMix64 (Steele, Lea,
// Flood, "Fast splittable pseudorandom number generators", 2014), whose state begins with the seed:
// the bits of the attribute `seed`, or a hash of the node's name; in the body of a Loop another
// multiple of an odd number in each iteration is added. So every run, on every machine, draws the
// same numbers, and each iteration draws others.
#include <fmt/format.h>

#include <bit>
#include <numbers>

#include "anneal/importer/onnx/tensor_proto.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

uint64_t read_seed(Node& node) {
  const float seed = node.number("seed", 0);
  return seed == 0 ? fnv1a(node.name()) : std::bit_cast<uint32_t>(seed);
}

Expression bits(Expression of, uint64_t value) {
  return {of.builder, of.builder->constant(RegisterType::kU64, static_cast<int64_t>(value))};
}

// Number i + 1 of the generator, u64. index, seed: u64
Expression drawn(Expression index, Expression seed) {
  const auto shifted = [](Expression x, uint64_t by) {
    return x.apply(Opcode::kBitXor, x.apply(Opcode::kShiftRight, bits(x, by)));
  };
  const Expression state = (index + bits(index, 1)) * bits(index, 0x9e3779b97f4a7c15) + seed;
  const Expression first = shifted(state, 30) * bits(index, 0xbf58476d1ce4e5b9);
  const Expression second = shifted(first, 27) * bits(index, 0x94d049bb133111eb);
  return shifted(second, 31);
}

// 24 of its bits from `lowest` on, as a number in [0, 1).
Expression fraction(Expression drawn, uint64_t lowest, RegisterType real) {
  const Expression kept = drawn.apply(Opcode::kShiftRight, bits(drawn, lowest))
                              .apply(Opcode::kBitAnd, bits(drawn, 0xffffff));
  return kept.cast(real) * 0x1p-24;
}

RegisterType real_of(DataType dtype) {
  return dtype == DataType::kF64 ? RegisterType::kF64 : RegisterType::kF32;
}

// A number of `dtype` for each place, made from the random bits of this place.
using Draw = FunctionRef<Expression(Expression)>;
ValueId draw_numbers(Node& node, Size total, DataType dtype, Draw draw) {
  const uint64_t seed = read_seed(node);
  const ValueId zero =
      node.constant_value(Tensor::of<uint8_t>(DataType::kBool, {}, {{uint8_t{0}}}), "zero");
  const ValueId places = expanded(node, zero, {total}, "places");
  std::vector<ValueId> inputs = {places};
  if (node.iteration() != ValueId::kNone) inputs.push_back(node.iteration());
  return pointwise(node, "drawn", inputs, dtype, [&](Expressions in) {
    Expression start = bits(in[0], seed);
    for (const Expression iteration : in.subspan(1))
      start = iteration.cast(RegisterType::kU64) * bits(start, 0xd1342543de82ef95) + start;
    return draw(drawn(in[0].index(0).cast(RegisterType::kU64), start));
  });
}

Size total_of(Node& node, const std::vector<Size>& shape) {
  return product(Shape(std::span<const Size>(shape)), node.sizes());
}

Outputs random_tensor(Node& node, const std::vector<Size>& shape, DataType dtype, Draw draw) {
  const ValueId flat = draw_numbers(node, total_of(node, shape), dtype, draw);
  return reshape_result(node, flat, shape);
}

Outputs normal(Node& node, const std::vector<Size>& shape, DataType dtype) {
  const double mean = node.number("mean", 0), scale = node.number("scale", 1);
  const RegisterType real = real_of(dtype);
  // Box and Muller, 1958: the radius is of a number in (0, 1].
  return random_tensor(node, shape, dtype, [&](Expression number) {
    const Expression radius =
        (-((fraction(number, 40, real) + 0x1p-24).apply(Opcode::kLog) * 2.0)).apply(Opcode::kSqrt);
    const Expression angle = fraction(number, 16, real) * (2 * std::numbers::pi);
    return radius * angle.apply(Opcode::kCos) * scale + mean;
  });
}

Outputs uniform(Node& node, const std::vector<Size>& shape, DataType dtype) {
  const double low = node.number("low", 0), high = node.number("high", 1);
  return random_tensor(node, shape, dtype, [&](Expression number) {
    return fraction(number, 40, real_of(dtype)) * (high - low) + low;
  });
}

DataType wanted_dtype(Node& node, DataType otherwise) {
  const auto type = node.find_integer("dtype");
  return type ? require_dtype(static_cast<int32_t>(*type)) : otherwise;
}

DataType float_dtype(Node& node, DataType otherwise) {
  const DataType dtype = wanted_dtype(node, otherwise);
  if (!kFloats.contains(dtype)) node.unsupported(fmt::format("numbers of {}", to_string(dtype)));
  return dtype;
}

std::vector<Size> given_shape(Node& node) {
  node.expect_inputs(0, 0);
  const auto shape = node.find_integers("shape");
  if (!shape) node.invalid("attribute \"shape\" is missing");
  for (const int64_t size : *shape)
    if (size < 0) node.invalid(fmt::format("a size of {}", size));
  return {shape->begin(), shape->end()};
}

std::vector<Size> shape_of_input(Node& node) {
  node.expect_inputs(1, 1);
  return {node.shape(0).begin(), node.shape(0).end()};
}

Outputs import_random_normal(Node& node) {
  return normal(node, given_shape(node), float_dtype(node, DataType::kF32));
}
Outputs import_random_uniform(Node& node) {
  return uniform(node, given_shape(node), float_dtype(node, DataType::kF32));
}
Outputs import_random_normal_like(Node& node) {
  return normal(node, shape_of_input(node), float_dtype(node, node.dtype(0)));
}
Outputs import_random_uniform_like(Node& node) {
  return uniform(node, shape_of_input(node), float_dtype(node, node.dtype(0)));
}

// A number in [0, 1) for each element of `shape`, as f32.
ValueId uniform_numbers(Node& node, const std::vector<Size>& shape) {
  const ValueId flat =
      draw_numbers(node, total_of(node, shape), DataType::kF32,
                   [](Expression number) { return fraction(number, 40, RegisterType::kF32); });
  return reshape(node, flat, shape, "uniform");
}

Outputs import_bernoulli(Node& node) {
  const std::vector<Size> shape = shape_of_input(node);
  const DataType given = node.dtype(0, kFloats), dtype = wanted_dtype(node, given);
  if (dtype == DataType::kString) node.unsupported("strings");
  const ValueId numbers = uniform_numbers(node, shape);
  return pointwise_result(node, {node.input(0), numbers}, dtype, [&](Expressions in) {
    return (in[1].cast(in[0].reg.type) < in[0]).cast(register_type(dtype));
  });
}

// x: logarithms of weights, [batch, classes]. A sample is the first class up to which the
// probabilities add up to more than a uniform number.
Outputs import_multinomial(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  if (node.rank(0) != 2) node.invalid(fmt::format("{} axes, 2 expected", node.rank(0)));
  const DataType dtype = wanted_dtype(node, DataType::kI32);
  if (dtype != DataType::kI32 && dtype != DataType::kI64) node.invalid("\"dtype\" is no index");
  const int64_t samples = node.integer("sample_size", 1);
  if (samples < 1) node.invalid(fmt::format("attribute \"sample_size\" is {}", samples));
  const Size batch = node.shape(0)[0], classes = node.shape(0)[1];
  const ValueId probabilities = node.layer(Softmax{.axis = 1}, {node.input(0)}, "probabilities");
  const ValueId axis = scalar_value(node, 1, "class_axis");
  const ValueId sums = reshape(node, node.layer(Cumulative{}, {probabilities, axis}, "sums"),
                               {batch, 1, classes}, "sums_of_batch");
  const ValueId numbers = uniform_numbers(node, {batch, Size(samples), 1});
  const ValueId behind =
      pointwise(node, "behind", {sums, numbers}, DataType::kI64, [](Expressions in) {
        return (in[0] <= in[1].cast(in[0].reg.type)).cast(RegisterType::kI64);
      });
  const ValueId index =
      node.layer(Reduce{.keepdims = false}, {behind, node.integers_value({2}, "classes")}, "index");
  const ValueId last = node.sizes_value({node.sizes().sub(classes, 1)}, "last_class");
  return pointwise_result(node, {index, last}, dtype, [&](Expressions in) {
    return min(in[0], in[1]).cast(register_type(dtype));  // sums may end just below 1
  });
}

constexpr OpRow kRandomRows[] = {
    {"", "Bernoulli", 15, kLatest, import_bernoulli},
    {"", "Multinomial", 7, kLatest, import_multinomial},
    {"", "RandomNormal", 1, kLatest, import_random_normal},
    {"", "RandomNormalLike", 1, kLatest, import_random_normal_like},
    {"", "RandomUniform", 1, kLatest, import_random_uniform},
    {"", "RandomUniformLike", 1, kLatest, import_random_uniform_like},
};

}  // namespace

std::span<const OpRow> random_rows() { return kRandomRows; }

}  // namespace anneal
