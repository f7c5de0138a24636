#include "anneal/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/graph/op/infer_rules.h"
#include "anneal/graph/refine.h"
#include "anneal/graph/size_dependencies.h"

namespace anneal {
namespace {

size_t index_of(ValueId id) { return static_cast<size_t>(id); }
size_t index_of(LayerId id) { return static_cast<size_t>(id); }

Fact fact_of(const Tensor& tensor) {
  Fact fact{type_of(tensor), std::nullopt};
  const bool integers = is_integer(tensor.dtype()) || tensor.dtype() == DataType::kBool;
  if (!integers || tensor.count() > kMaxKnownElements) return fact;
  SizeTable none;
  const TensorView view = kernel_view(tensor);
  const InferInput input{&fact, &view};
  auto elements = InferInputs({&input, 1}, none).elements(0);
  return rules::make_fact(tensor.dtype(), fact.type.shape, std::move(elements));
}

std::string described(const Layer& layer) {
  return fmt::format("layer \"{}\" ({})", layer.name, to_string(layer.op));
}

}  // namespace

Graph::Graph() : sizes_(std::make_shared<SizeTable>()) {}

Graph Graph::clone() const { return copy_into(std::make_shared<SizeTable>(*sizes_)); }

Graph Graph::copy_into(const std::shared_ptr<SizeTable>& sizes) const {
  Graph copy(sizes);
  copy.name = name;
  copy.layers_ = layers_;
  copy.values_ = values_;
  copy.inputs_ = inputs_;
  copy.outputs_ = outputs_;
  copy.value_names_ = value_names_;
  copy.layer_names_ = layer_names_;
  copy.next_suffix_ = next_suffix_;
  copy.replaced_sizes_ = replaced_sizes_;
  for (const Graph& body : bodies_) copy.bodies_.push_back(body.copy_into(sizes));
  return copy;
}

Graph& Graph::add_body(Graph body) {
  check(body.sizes_ == sizes_, "a body shares the sizes of its graph");
  return bodies_.emplace_back(std::move(body));
}

const Layer& Graph::layer(LayerId id) const {
  check(index_of(id) < layers_.size(), "a layer of this graph");
  return layers_[index_of(id)];
}

const Value& Graph::value(ValueId id) const {
  check(index_of(id) < values_.size(), "a value of this graph");
  return values_[index_of(id)];
}

Value& Graph::mutable_value(ValueId id) { return const_cast<Value&>(value(id)); }
Layer& Graph::mutable_layer(LayerId id) { return const_cast<Layer&>(layer(id)); }

const Tensor* Graph::constant(ValueId id) const {
  if (id == ValueId::kNone) return nullptr;
  const Value& v = value(id);
  return v.constant ? &*v.constant : nullptr;
}

bool Graph::is_output(ValueId id) const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [id](const Output& output) { return output.value == id; });
}

ValueId Graph::find_value(std::string_view name) const {
  const auto found = value_names_.find(std::string(name));
  return found == value_names_.end() ? ValueId::kNone : found->second;
}

size_t Graph::layer_count() const { return layer_names_.size(); }

std::vector<LayerId> Graph::layers() const {
  std::vector<LayerId> ids;
  for (size_t i = 0; i < layers_.size(); ++i)
    if (!std::holds_alternative<std::monostate>(layers_[i].op))
      ids.push_back(static_cast<LayerId>(i));
  return ids;
}

template <class Id>
std::string Graph::unique(std::string name, const std::unordered_map<std::string, Id>& taken) {
  if (!taken.contains(name)) return name;
  int& suffix = next_suffix_.try_emplace(name, 2).first->second;
  std::string candidate;
  do candidate = fmt::format("{}.{}", name, suffix++);
  while (taken.contains(candidate));
  return candidate;
}

ValueId Graph::new_value(std::string name, Fact fact) {
  const auto id = static_cast<ValueId>(values_.size());
  Value value;
  value.name = unique(name.empty() ? "value" : std::move(name), value_names_);
  value.fact = std::move(fact);
  value_names_.emplace(value.name, id);
  values_.push_back(std::move(value));
  return id;
}

ValueId Graph::add_input(std::string name, Type type, std::optional<Tensor> default_value) {
  check(!default_value || default_value->dtype() == type.dtype,
        "a default value has its input's element type");
  double elements = 1;
  for (const Size& size : type.shape) {
    if (size.is_unknown() || sizes_->range(size).max < 0)
      fail(ErrorCode::kInvalidModel,
           fmt::format("input \"{}\" has shape {}", name, sizes_->text(type.shape)));
    if (size.known()) elements *= static_cast<double>(size.value());
  }
  if (elements >= 0x1p63)
    fail(ErrorCode::kInvalidModel,
         fmt::format("more than 2^63 elements in the shape {}", sizes_->text(type.shape)));
  const ValueId id = new_value(std::move(name), {type, std::nullopt});
  mutable_value(id).default_value = std::move(default_value);
  inputs_.push_back(id);
  return id;
}

ValueId Graph::add_constant(std::string name, Tensor tensor) {
  const ValueId id = new_value(std::move(name), fact_of(tensor));
  mutable_value(id).constant = std::move(tensor);
  return id;
}

Facts Graph::infer_outputs(const Layer& layer, SizeDemands* demands) const {
  std::vector<TensorView> views(layer.inputs.size());
  std::vector<InferInput> inputs(layer.inputs.size());
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (layer.inputs[i] == ValueId::kNone) continue;
    const Value& input = value(layer.inputs[i]);
    inputs[i].fact = &input.fact;
    if (!input.constant) continue;
    views[i] = kernel_view(*input.constant);
    inputs[i].value = &views[i];
  }
  std::vector<Signature> bodies;
  if (!bodies_of(layer.op).empty())
    for (const Graph& body : bodies_) bodies.push_back(body.signature());
  return infer_layer(layer.op, layer.epilogues, layer.op_input_count,
                     InferInputs(inputs, *sizes_, bodies, demands));
}

Signature Graph::signature() const {
  Signature signature;
  for (const ValueId input : inputs_) signature.inputs.push_back(value(input).type());
  for (const Output& output : outputs_) signature.outputs.push_back(value(output.value).type());
  return signature;
}

std::vector<bool> Graph::symbols_of_inputs() const {
  std::vector<bool> found(sizes_->symbols().size());
  for (const ValueId input : inputs_) mark_symbols(value(input).type().shape, *sizes_, found);
  return found;
}

Facts Graph::infer_outputs(LayerId id, SizeDemands* demands) const {
  const Layer& of = layer(id);
  return with_context([&] { return described(of); }, [&] { return infer_outputs(of, demands); });
}

void Graph::name_unknown_sizes(Facts& facts, const std::vector<std::string>& names,
                               bool alike) const {
  const Facts inferred = facts;
  for (size_t k = 0; k < facts.size(); ++k) {
    Shape& shape = facts[k].type.shape;
    size_t same = alike ? 0 : k;
    while (inferred[same].type.shape != inferred[k].type.shape) ++same;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (!shape[axis].is_unknown()) continue;
      shape[axis] = same < k ? facts[same].type.shape[axis]
                             : sizes_->fresh(fmt::format("{}.size{}", names[k], axis));
    }
  }
}

LayerId Graph::add(NewLayer added) {
  Layer layer;
  layer.name = unique(added.name.empty() ? "layer" : std::move(added.name), layer_names_);
  layer.origins = std::move(added.origins);
  if (layer.origins.empty()) layer.origins.push_back(layer.name);
  layer.op = std::move(added.op);
  layer.epilogues = std::move(added.epilogues);
  layer.inputs = std::move(added.inputs);
  layer.op_input_count =
      added.op_input_count < 0 ? static_cast<int>(layer.inputs.size()) : added.op_input_count;

  Facts facts;
  with_context([&] { return described(layer); },
               [&] {
                 facts = infer_outputs(layer, nullptr);
                 if (!added.output_types.empty() && added.output_types.size() != facts.size())
                   rules::refuse(fmt::format("{} types for {} outputs", added.output_types.size(),
                                             facts.size()));
                 for (size_t k = 0; k < added.output_types.size(); ++k)
                   facts[k] = narrowed({added.output_types[k], std::nullopt}, facts[k]);
                 if (added.output_names.size() > facts.size())
                   rules::refuse(fmt::format("{} names for {} outputs", added.output_names.size(),
                                             facts.size()));
               });
  added.output_names.resize(facts.size(), layer.name);
  name_unknown_sizes(facts, added.output_names, bodies_of(layer.op).empty());

  const auto id = static_cast<LayerId>(layers_.size());
  for (size_t k = 0; k < facts.size(); ++k) {
    layer.outputs.push_back(new_value(std::move(added.output_names[k]), std::move(facts[k])));
    mutable_value(layer.outputs.back()).producer = id;
  }
  for (ValueId input : layer.inputs)
    if (input != ValueId::kNone) mutable_value(input).users.push_back(id);
  layer_names_.emplace(layer.name, id);
  layers_.push_back(std::move(layer));
  return id;
}

void Graph::mark_output(ValueId id, std::string name) {
  static_cast<void>(value(id));
  for (const Output& output : outputs_)
    if (output.name == name)
      fail(ErrorCode::kInvalidModel, fmt::format("two graph outputs are named \"{}\"", name));
  outputs_.push_back({std::move(name), id});
}

void Graph::replace_output(size_t index, ValueId id) {
  check(index < outputs_.size() &&
            value(id).type().dtype == value(outputs_[index].value).type().dtype,
        "an output and another value of its dtype");
  outputs_[index].value = id;
}

void Graph::keep_ports(std::vector<ValueId> inputs, std::vector<Output> outputs) {
  for (const ValueId input : inputs_)
    check(std::ranges::find(inputs, input) != inputs.end() || value(input).users.empty(),
          "nothing reads an input that is left out");
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
}

void Graph::replace_uses(ValueId from, ValueId to) {
  if (from == to) return;
  Value &old = mutable_value(from), &replacement = mutable_value(to);
  check(old.type().dtype == replacement.type().dtype &&
            old.type().shape.rank() == replacement.type().shape.rank() &&
            old.type().container == replacement.type().container,
        "replace_uses between values of one dtype and rank");
  if (old.type().shape != replacement.type().shape) {
    const std::vector<bool> fixed = symbols_of_inputs();
    for (int axis = 0; axis < old.type().shape.rank(); ++axis)
      note_replacement(old.type().shape[axis], replacement.type().shape[axis], fixed, *sizes_,
                       replaced_sizes_);
  }
  for (LayerId user : old.users) {
    auto& inputs = mutable_layer(user).inputs;
    std::replace(inputs.begin(), inputs.end(), from, to);
    replacement.users.push_back(user);  // users has one entry per use
  }
  old.users.clear();
  for (Output& output : outputs_)
    if (output.value == from) output.value = to;
}

void Graph::swap_names(ValueId a, ValueId b) {
  std::swap(mutable_value(a).name, mutable_value(b).name);
  value_names_[value(a).name] = a;
  value_names_[value(b).name] = b;
}

void Graph::swap_names(LayerId a, LayerId b) {
  std::swap(mutable_layer(a).name, mutable_layer(b).name);
  layer_names_[layer(a).name] = a;
  layer_names_[layer(b).name] = b;
}

void Graph::replace_layer(LayerId from, LayerId to) {
  check(layer(from).outputs.size() == layer(to).outputs.size(), "a layer with as many outputs");
  for (size_t k = 0; k < layer(from).outputs.size(); ++k) {
    const ValueId old = layer(from).outputs[k], replacement = layer(to).outputs[k];
    replace_uses(old, replacement);
    swap_names(old, replacement);
  }
  swap_names(from, to);
}

void Graph::erase(LayerId id) {
  Layer& layer = mutable_layer(id);
  for (ValueId input : layer.inputs) {
    if (input == ValueId::kNone) continue;
    auto& users = mutable_value(input).users;
    users.erase(std::find(users.begin(), users.end(), id));
  }
  for (ValueId output : layer.outputs) {
    value_names_.erase(value(output).name);
    mutable_value(output).producer = LayerId::kNone;
  }
  layer_names_.erase(layer.name);
  layer = Layer();
}

bool Graph::must_run(const Layer& layer) const {
  if (std::holds_alternative<Require>(layer.op)) {
    const auto& condition = value(layer.inputs[0]).fact.elements;
    return !condition || condition->size() != 1 || condition->front() != Size(1);
  }
  return std::ranges::any_of(bodies_of(layer.op), [&](const BodyUse& use) {
    const Graph& body = bodies_[static_cast<size_t>(use.body)];
    return std::ranges::any_of(body.layers_, [&](const Layer& one) { return body.must_run(one); });
  });
}

void Graph::erase_unused() {
  for (Graph& body : bodies_) body.erase_unused();
  std::vector<bool> is_output(values_.size()), is_input(values_.size());
  for (const Output& output : outputs_) is_output[index_of(output.value)] = true;
  for (ValueId input : inputs_) is_input[index_of(input)] = true;
  const auto unused = [&](ValueId id) {
    return !is_output[index_of(id)] && value(id).users.empty();
  };
  // Layers that find a size for this many others.
  const SizeDependencies size_dependencies(*this);
  std::unordered_map<LayerId, int> size_users;
  std::vector<LayerId> candidates = layers();
  for (const LayerId id : candidates)
    for (const LayerId finder : size_dependencies.of(id)) ++size_users[finder];
  while (!candidates.empty()) {
    const LayerId id = candidates.back();
    candidates.pop_back();
    const Layer& one = layer(id);
    const auto finds_sizes = size_users.find(id);
    if (std::holds_alternative<std::monostate>(one.op) ||
        !std::all_of(one.outputs.begin(), one.outputs.end(), unused) || must_run(one) ||
        (finds_sizes != size_users.end() && finds_sizes->second > 0))
      continue;
    const std::vector<ValueId> inputs = one.inputs;
    erase(id);
    for (ValueId input : inputs)
      if (input != ValueId::kNone && value(input).producer != LayerId::kNone)
        candidates.push_back(value(input).producer);
    for (const LayerId finder : size_dependencies.of(id)) {
      --size_users[finder];
      candidates.push_back(finder);
    }
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (!values_[i].constant || is_input[i] || !unused(id)) continue;
    value_names_.erase(values_[i].name);
    values_[i].constant.reset();
  }
  std::vector<bool> run(bodies_.size());
  for (const Layer& one : layers_)
    for (const BodyUse& use : bodies_of(one.op)) run[static_cast<size_t>(use.body)] = true;
  for (size_t i = 0; i < bodies_.size(); ++i)
    if (!run[i]) bodies_[i] = make_body();
}

Fact Graph::narrowed(const Fact& old, const Fact& inferred) const {
  const Type &before = old.type, &now = inferred.type;
  const auto contradict = [&] {
    rules::refuse(fmt::format("{} {} became {} {}", anneal::to_string(before.dtype),
                              sizes_->text(before.shape), anneal::to_string(now.dtype),
                              sizes_->text(now.shape)));
  };
  if (before.dtype != now.dtype || before.container != now.container ||
      before.shape.rank() != now.shape.rank())
    contradict();
  Fact result = inferred;
  for (int axis = 0; axis < now.shape.rank(); ++axis) {
    if (rules::surely_differ(before.shape[axis], now.shape[axis], *sizes_)) contradict();
    if (now.shape[axis].is_unknown() || before.shape[axis].known())
      result.type.shape[axis] = before.shape[axis];
  }
  if (!old.elements) return result;
  if (!result.elements) {
    result.elements = old.elements;
  } else if (result.elements->size() == old.elements->size()) {
    for (size_t i = 0; i < old.elements->size(); ++i)
      if ((*result.elements)[i].is_unknown()) (*result.elements)[i] = (*old.elements)[i];
  }
  return result;
}

void Graph::set_input_shape(ValueId input, const Shape& shape) {
  check(std::find(inputs_.begin(), inputs_.end(), input) != inputs_.end(), "a graph input");
  Value& value = mutable_value(input);
  Shape& old = value.fact.type.shape;
  if (shape.rank() != old.rank())
    fail(ErrorCode::kInvalidArgument,
         fmt::format("input \"{}\" has rank {}, not {}", value.name, old.rank(), shape.rank()));
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis].is_unknown() || rules::surely_differ(old[axis], shape[axis], *sizes_))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("input \"{}\" of shape {} cannot become {}", value.name, sizes_->text(old),
                       sizes_->text(shape)));
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!shape[axis].known() || !sizes_->symbol_index(old[axis])) continue;
    const int64_t size = shape[axis].value();
    sizes_->set_bounds(old[axis], {size, size, size});
  }
  old = shape;
}

}  // namespace anneal
