#include "anneal/tests/random/maker.h"

#include <fmt/format.h>

#include <cmath>

#include "anneal/tests/random/steps.h"
#include "anneal/tests/random/used_nodes.h"

namespace anneal::random_graphs {
namespace {

constexpr double kMagnitude = 32;  // of floats that steps read

}  // namespace

bool is_small(const Extents& dims) {
  double elements = 1;
  for (const Extent& dim : dims) {
    if (dim.least() < 1) return false;
    elements *= static_cast<double>(dim.largest());
  }
  return elements <= 6000 && dims.size() <= 6;
}

int exact_grid(int grid, double largest) {
  return grid >= 0 && grid < 20 && largest * std::ldexp(1, grid) < (1 << 22) ? grid : -1;
}

Value float_constant(Maker& maker, const Extents& dims, double low, double high, bool exact) {
  if (exact) low = std::ceil(low * 4) / 4, high = std::floor(high * 4) / 4;
  anneal_onnx::TensorProto tensor;
  tensor.set_data_type(onnx::FLOAT);
  for (const Extent& dim : dims) tensor.add_dims(dim.in[0]);
  for (int64_t i = 0; i < product(dims).in[0]; ++i) {
    const double number = maker.random().uniform(low, high);
    tensor.add_float_data(static_cast<float>(exact ? std::round(number * 4) / 4 : number));
  }
  return maker.constant(tensor, {.dims = dims, .low = low, .high = high, .grid = exact ? 2 : -1});
}

Value number_constant(Maker& maker, double number) {
  anneal_onnx::TensorProto tensor;
  tensor.set_data_type(onnx::FLOAT);
  tensor.add_float_data(static_cast<float>(number));
  int grid = 0;
  while (grid < 12 && std::ldexp(number, grid) != std::round(std::ldexp(number, grid))) ++grid;
  return maker.constant(tensor, {.low = number, .high = number, .grid = grid < 12 ? grid : -1});
}

namespace {

Value integers(Maker& maker, const std::vector<int64_t>& numbers, int type, bool scalar) {
  anneal_onnx::TensorProto tensor;
  tensor.set_data_type(type);
  Value value{.type = type, .grid = 0, .contents = Extents()};
  if (!scalar) {
    tensor.add_dims(static_cast<int64_t>(numbers.size()));
    value.dims.push_back(static_cast<int64_t>(numbers.size()));
  }
  for (const int64_t number : numbers) {
    if (type == onnx::INT64)
      tensor.add_int64_data(number);
    else
      tensor.add_int32_data(static_cast<int32_t>(number));
    value.contents->push_back(number);
    value.low = std::min(value.low, static_cast<double>(number));
    value.high = std::max(value.high, static_cast<double>(number));
  }
  return maker.constant(tensor, value);
}

}  // namespace

Value integer_constant(Maker& maker, const std::vector<int64_t>& numbers, int type) {
  return integers(maker, numbers, type, false);
}
Value scalar_constant(Maker& maker, int64_t number, int type) {
  return integers(maker, {number}, type, true);
}

Maker::Maker(const Recipe& recipe)
    : recipe_(recipe), random_(mixed(recipe.seed, static_cast<uint64_t>(recipe.kind))) {
  opset_ = random_.one_in(4) ? 17 : 21;
  scopes_.emplace_back();
}

std::string Maker::new_name(const char* prefix) {
  return fmt::format("{}{}_{}", prefix, step_, names_++);
}

// Rendezvous hashing: a value that goes away changes the choices that fell on it and no other.
std::optional<Value> Maker::choose(const Fits& fits) {
  const uint64_t draw = random_.next();
  const Value* best = nullptr;
  double best_score = 0;
  for (const Value& value : values()) {
    if (!fits(value)) continue;
    const uint64_t hash = mixed(draw, hash_of(value.name));
    const double uniform = (static_cast<double>(hash >> 11) + 1) * 0x1p-53;
    const double score = -std::log(uniform) / (1 + value.step);  // later values more often
    if (best && score >= best_score) continue;
    best = &value;
    best_score = score;
  }
  return best ? std::optional(*best) : std::nullopt;
}

// May be read from now on.
Value Maker::show(Value value) {
  model_.facts[value.name] = value;
  scopes_.back().values.push_back(value);
  return value;
}

// By a constant factor, or by a function with bounds.
Value Maker::smaller(const Value& value) {
  Value result = value;
  const int shift = static_cast<int>(std::ceil(std::log2(value.largest() / 8)));
  if (value.exact() && exact_grid(value.grid + shift, 8) >= 0 && !random_.one_in(4)) {
    result.low = std::ldexp(value.low, -shift);
    result.high = std::ldexp(value.high, -shift);
    result.grid = value.grid + shift;
    return apply("Mul", {value, number_constant(*this, std::ldexp(1, -shift))}, result);
  }
  switch (random_.below(4)) {
    case 0:
      result = {.dims = value.dims, .low = -1, .high = 1};
      return apply("Tanh", {value}, result);
    case 1:
      result = {.dims = value.dims, .low = 0, .high = 1};
      return apply("Sigmoid", {value}, result);
    case 2:
      result.low = std::max(value.low, -6.);
      result.high = std::min(value.high, 6.);
      return apply("Clip", {value, number_constant(*this, -6), number_constant(*this, 6)}, result);
    default:
      const double factor = 8 / value.largest();
      result = {.dims = value.dims, .low = value.low * factor, .high = value.high * factor};
      return apply("Mul", {value, number_constant(*this, factor)}, result);
  }
}

Value Maker::apply(const char* op, const std::vector<Value>& inputs, Value result,
                   const Attributes& attributes) {
  return apply_all(op, inputs, {std::move(result)}, attributes)[0];
}

std::vector<Value> Maker::apply_all(const char* op, const std::vector<Value>& inputs,
                                    std::vector<Value> results, const Attributes& attributes) {
  auto& node = *scopes_.back().graph.add_node();
  node.set_op_type(op);
  for (const Value& input : inputs) node.add_input(input.name);
  for (Value& result : results) {
    result.name = new_name("v");
    result.step = step_;
    result.is_constant = false;
    node.add_output(result.name);
  }
  node.set_name(fmt::format("{}_{}", op, results[0].name));
  if (attributes) attributes(node);
  for (Value& result : results) {
    if (result.is_float() && result.grid >= 0)
      result.grid = exact_grid(result.grid, result.largest());
    if (result.is_float() && result.largest() > kMagnitude) {
      model_.facts[result.name] = result;
      result = smaller(result);
    } else if (product(result.dims).least() > 0) {
      show(result);
    }
  }
  return results;
}

void Maker::hide(const Value& value) {
  std::erase_if(scopes_.back().values, [&](const Value& each) { return each.name == value.name; });
}

Value Maker::constant(anneal_onnx::TensorProto tensor, Value value) {
  value.name = new_name("c");
  value.step = 0;
  value.is_constant = true;
  if (random_.one_in(4)) {
    auto& node = *scopes_.back().graph.add_node();
    node.set_op_type("Constant");
    node.add_output(value.name);
    *attribute(node, "value", anneal_onnx::AttributeProto::TENSOR).mutable_t() = tensor;
  } else {
    tensor.set_name(value.name);
    constants_.push_back(std::move(tensor));
  }
  model_.facts[value.name] = value;
  return value;
}

void Maker::add_steps(int count) {
  for (int i = 0; i < count; ++i)
    for (int attempt = 0; attempt < 4; ++attempt)
      if (step_for(recipe_.kind, depth(), random_).add(*this)) break;
}

anneal_onnx::GraphProto Maker::close_scope() {
  anneal_onnx::GraphProto graph = std::move(scopes_.back().graph);
  scopes_.pop_back();
  graph.set_name(new_name("body"));
  return graph;
}

namespace {

void describe(anneal_onnx::ValueInfoProto& info, const Value& value, bool with_shape) {
  info.set_name(value.name);
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(value.type);
  if (!with_shape) return;
  type.mutable_shape();
  for (const Extent& dim : value.dims) {
    auto* added = type.mutable_shape()->add_dim();
    if (dim.constant()) added->set_dim_value(dim.in[0]);
  }
}

}  // namespace

Value Maker::body_input(Value value) {
  value.name = new_name("b");
  value.step = step_;
  value.is_constant = false;
  // Half of the graphs declare sizes: exporters do either.
  describe(*scopes_.back().graph.add_input(), value, value.dims.empty() || random_.one_in(2));
  return show(value);
}

void Maker::body_output(const Value& value, bool with_shape) {
  describe(*scopes_.back().graph.add_output(), value, with_shape);
}

RandomModel Maker::make() {
  add_inputs();
  model_.steps = static_cast<int>(3 + random_.below(14));
  for (int i = 0; i < model_.steps; ++i) {
    step_ = i + 1;
    names_ = 0;
    if (recipe_.left_out.contains(i)) continue;
    random_ = RandomNumbers(mixed(recipe_.seed, static_cast<uint64_t>(step_)));
    add_steps(1);
  }
  auto& graph = scopes_[0].graph;
  graph.set_name(fmt::format("{}_{}", to_string(recipe_.kind), recipe_.seed));
  if (values().back().step == 0) {
    step_ = model_.steps + 1;
    unary(*this, *choose([](const Value& value) { return value.is_float(); }));
  }
  std::set<std::string> read;
  for (const auto& node : graph.node()) add_reads(node, read);
  for (const Value& value : values()) {
    // NumPy has no bf16, in which ONNX Runtime would return it.
    if (value.step == 0 || value.type == onnx::BFLOAT16) continue;
    const bool wanted =
        recipe_.outputs.empty()
            ? !read.contains(value.name) || mixed(recipe_.seed, hash_of(value.name)) % 6 == 0
            : recipe_.outputs.contains(value.name);
    if (wanted) describe(*graph.add_output(), value, false);
  }
  for (auto& constant : constants_) *graph.add_initializer() = std::move(constant);
  model_.proto.set_ir_version(opset_ < 21 ? 8 : 10);
  auto* import = model_.proto.add_opset_import();
  import->set_domain("");
  import->set_version(opset_);
  *model_.proto.mutable_graph() = std::move(graph);
  bypass_nodes(*model_.proto.mutable_graph(), recipe_.bypassed, model_.facts);
  keep_used(model_);
  return std::move(model_);
}

RandomModel random_model(const Recipe& recipe) { return Maker(recipe).make(); }

}  // namespace anneal::random_graphs
