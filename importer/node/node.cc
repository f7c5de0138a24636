#include "anneal/importer/node/node.h"

#include <algorithm>
#include <utility>

#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {
namespace {

using anneal_onnx::AttributeProto;

// Files before IR version 2 leave the type out.
bool holds(const AttributeProto& data, int type) {
  if (data.has_type() && data.type() != AttributeProto::UNDEFINED) return data.type() == type;
  switch (type) {
    case AttributeProto::FLOAT:
      return data.has_f();
    case AttributeProto::INT:
      return data.has_i();
    case AttributeProto::STRING:
      return data.has_s();
    case AttributeProto::TENSOR:
      return data.has_t();
    case AttributeProto::FLOATS:
      return data.floats_size() > 0;
    case AttributeProto::INTS:
      return data.ints_size() > 0;
    case AttributeProto::STRINGS:
      return data.strings_size() > 0;
    default:
      return false;
  }
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

}  // namespace

Node::Node(Model& model, std::string name, int opset, std::vector<Attribute> attributes,
           std::vector<ValueId> inputs, std::vector<std::string> output_names)
    : model_(model),
      name_(std::move(name)),
      opset_(opset),
      attributes_(std::move(attributes)),
      inputs_(std::move(inputs)),
      output_names_(std::move(output_names)) {
  while (!inputs_.empty() && inputs_.back() == ValueId::kNone) inputs_.pop_back();
}

void Node::invalid(const std::string& why) const { fail(Code::kInvalidModel, why); }
void Node::unsupported(const std::string& why) const { fail(Code::kUnsupported, why); }

bool Node::has_input(int index) const {
  return index < input_count() && inputs_[index] != ValueId::kNone;
}

ValueId Node::optional_input(int index) const {
  if (!has_input(index)) return ValueId::kNone;
  if (graph().value(inputs_[index]).type().container != Container::kTensor)
    unsupported("input " + std::to_string(index) + " is a sequence or an optional");
  return inputs_[index];
}

ValueId Node::input(int index) const {
  if (!has_input(index)) invalid("input " + std::to_string(index) + " is missing");
  return optional_input(index);
}

void Node::expect_inputs(int min, int max) const {
  if (input_count() < min || input_count() > max)
    invalid(std::to_string(input_count()) + " inputs, " + std::to_string(min) +
            (min == max ? "" : " to " + std::to_string(max)) + " expected");
}

const Shape& Node::shape(int index) const { return graph().value(input(index)).type().shape; }
DataType Node::dtype(int index) const { return graph().value(input(index)).type().dtype; }

DataType Node::dtype(int index, TypeSet allowed) const {
  const DataType type = dtype(index);
  if (allowed.contains(type)) return type;
  if (type == DataType::kString) unsupported("strings");
  invalid("input " + std::to_string(index) + " is " + std::string(anneal::to_string(type)) +
          ", which the operator does not take");
}

void Node::expect_same_dtype(std::initializer_list<int> indices) const {
  std::optional<DataType> first;
  for (const int index : indices) {
    if (!has_input(index)) continue;
    if (first && *first != dtype(index))
      invalid("inputs of different types: " + std::string(anneal::to_string(*first)) + " and " +
              std::string(anneal::to_string(dtype(index))));
    first = dtype(index);
  }
}

const Tensor* Node::constant(int index) const {
  return has_input(index) ? graph().constant(input(index)) : nullptr;
}

std::optional<std::vector<Size>> Node::contents(int index) const {
  if (!has_input(index)) return std::nullopt;
  const Value& value = graph().value(input(index));
  if (value.fact.elements) return value.fact.elements;
  if (!value.constant || !is_integer(value.constant->dtype())) return std::nullopt;
  std::vector<Size> sizes;
  for (const int64_t element : integers_of(*value.constant)) sizes.emplace_back(element);
  return sizes;
}

std::optional<std::vector<Size>> Node::known_sizes(int index) const {
  auto sizes = contents(index);
  const std::vector<bool> of_inputs = graph().symbols_of_inputs();
  if (sizes && std::any_of(sizes->begin(), sizes->end(), [&](Size size) {
        return size.is_unknown() || !this->sizes().is_made_of(size, of_inputs);
      }))
    return std::nullopt;
  return sizes;
}

std::optional<std::vector<int64_t>> Node::known_integers(int index) const {
  const auto sizes = contents(index);
  if (!sizes) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Size size : *sizes) {
    if (!size.known()) return std::nullopt;
    integers.push_back(size.value());
  }
  return integers;
}

std::vector<int64_t> Node::integers_of_input(int index, std::string_view what) const {
  dtype(index, kIntegers);
  if (auto integers = known_integers(index)) return *integers;
  unsupported(std::string(what) + " known only at run time");
}

std::vector<double> Node::numbers_of_input(int index, std::string_view what) const {
  dtype(index, kNumbers);
  if (const Tensor* tensor = constant(index)) return numbers_of(*tensor);
  if (const auto integers = known_integers(index)) return {integers->begin(), integers->end()};
  unsupported(std::string(what) + " known only at run time");
}

const AttributeProto* Node::find(std::string_view name, int type) {
  for (Attribute& attribute : attributes_) {
    if (attribute.name != name) continue;
    attribute.read = true;
    if (!holds(*attribute.data, type))
      invalid("attribute " + quoted(name) + " is not of kind " +
              AttributeProto::AttributeType_Name(static_cast<AttributeProto::AttributeType>(type)));
    return attribute.data;
  }
  return nullptr;
}

bool Node::has_attribute(std::string_view name) const {
  return std::any_of(attributes_.begin(), attributes_.end(),
                     [&](const Attribute& attribute) { return attribute.name == name; });
}

void Node::ignore(std::string_view name) {
  for (Attribute& attribute : attributes_) attribute.read |= attribute.name == name;
}

std::optional<int64_t> Node::find_integer(std::string_view name) {
  const auto* data = find(name, AttributeProto::INT);
  return data ? std::optional(data->i()) : std::nullopt;
}

int64_t Node::integer(std::string_view name) {
  if (const auto value = find_integer(name)) return *value;
  invalid("attribute " + quoted(name) + " is missing");
}

int64_t Node::integer(std::string_view name, int64_t otherwise) {
  return find_integer(name).value_or(otherwise);
}

bool Node::flag(std::string_view name, bool otherwise) {
  const int64_t value = integer(name, otherwise);
  if (value != 0 && value != 1)
    invalid("attribute " + quoted(name) + " is " + std::to_string(value) + ", not 0 or 1");
  return value == 1;
}

float Node::number(std::string_view name, float otherwise) {
  const auto* data = find(name, AttributeProto::FLOAT);
  return data ? data->f() : otherwise;
}

std::string Node::text(std::string_view name, std::string_view otherwise) {
  const auto* data = find(name, AttributeProto::STRING);
  return data ? data->s() : std::string(otherwise);
}

int Node::choice(std::string_view name, std::initializer_list<std::string_view> allowed) {
  const std::string value = text(name, *allowed.begin());
  const auto* found = std::find(allowed.begin(), allowed.end(), value);
  if (found == allowed.end()) invalid("attribute " + quoted(name) + " is " + quoted(value));
  return static_cast<int>(found - allowed.begin());
}

std::optional<std::vector<int64_t>> Node::find_integers(std::string_view name) {
  const auto* data = find(name, AttributeProto::INTS);
  if (!data) return std::nullopt;
  return std::vector<int64_t>(data->ints().begin(), data->ints().end());
}

std::optional<std::vector<float>> Node::find_numbers(std::string_view name) {
  const auto* data = find(name, AttributeProto::FLOATS);
  if (!data) return std::nullopt;
  return std::vector<float>(data->floats().begin(), data->floats().end());
}

std::optional<std::vector<std::string>> Node::find_texts(std::string_view name) {
  const auto* data = find(name, AttributeProto::STRINGS);
  if (!data) return std::nullopt;
  return std::vector<std::string>(data->strings().begin(), data->strings().end());
}

std::optional<Tensor> Node::find_tensor(std::string_view name) {
  const auto* data = find(name, AttributeProto::TENSOR);
  if (!data) return std::nullopt;
  return with_context([&] { return "attribute " + quoted(name); },
                      [&] { return to_tensor(data->t(), model_.folder); });
}

void Node::expect_all_read() const {
  for (const Attribute& attribute : attributes_)
    if (!attribute.read) unsupported("attribute " + quoted(attribute.name) + " is not understood");
}

int64_t Node::resolve_axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank)
    invalid("axis " + std::to_string(axis) + " of " + std::to_string(rank) + " axes");
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> Node::resolve_axes(std::vector<int64_t> axes, int rank) const {
  for (int64_t& axis : axes) axis = resolve_axis(axis, rank);
  std::sort(axes.begin(), axes.end());
  const auto twice = std::adjacent_find(axes.begin(), axes.end());
  if (twice != axes.end()) invalid("axis " + std::to_string(*twice) + " is given twice");
  return axes;
}

bool Node::has_output(int index) const {
  return index < output_count() && !output_names_[index].empty();
}

std::string Node::layer_name(std::string_view suffix) const {
  return suffix.empty() ? name_ : name_ + "/" + std::string(suffix);
}

// An ONNX value of that name may be yet to come, and keeps it.
std::string Node::free_value_name(std::string name) const {
  while (model_.reserved_names.contains(name)) name += "/value";
  return name;
}

std::vector<ValueId> Node::layers(Op op, std::vector<ValueId> inputs, std::string_view suffix) {
  NewLayer layer{.name = layer_name(suffix), .op = std::move(op), .inputs = std::move(inputs)};
  layer.origins = {name_};
  layer.output_names = {free_value_name(layer.name)};
  return graph().layer(graph().add(std::move(layer))).outputs;
}

ValueId Node::layer(Op op, std::vector<ValueId> inputs, std::string_view suffix) {
  return layers(std::move(op), std::move(inputs), suffix).front();
}

std::string Node::output_name(int index) const {
  return has_output(index) ? output_names_[static_cast<size_t>(index)] : free_value_name(name_);
}

Outputs Node::result(Op op, std::vector<ValueId> inputs, std::string_view suffix, int output) {
  NewLayer layer{.name = layer_name(suffix), .op = std::move(op), .inputs = std::move(inputs)};
  layer.origins = {name_};
  layer.output_names = {output_name(output)};
  return graph().layer(graph().add(std::move(layer))).outputs;
}

Outputs Node::result_with_epilogue(Op op, std::vector<ValueId> inputs, Program epilogue,
                                   const std::vector<ValueId>& further_inputs) {
  NewLayer layer{.name = name_, .op = std::move(op), .inputs = std::move(inputs)};
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.inputs.insert(layer.inputs.end(), further_inputs.begin(), further_inputs.end());
  layer.epilogues = {std::move(epilogue)};
  layer.origins = {name_};
  layer.output_names = {output_name(0)};
  return graph().layer(graph().add(std::move(layer))).outputs;
}

Outputs Node::results(Op op, std::vector<ValueId> inputs) {
  NewLayer layer{.name = name_, .op = std::move(op), .inputs = std::move(inputs)};
  layer.origins = {name_};
  for (int i = 0; i < output_count(); ++i) layer.output_names.push_back(output_name(i));
  return graph().layer(graph().add(std::move(layer))).outputs;
}

ValueId Node::result_constant(Tensor tensor) {
  return graph().add_constant(output_name(0), std::move(tensor));
}

ValueId Node::constant_value(Tensor tensor, std::string_view suffix) {
  return graph().add_constant(free_value_name(layer_name(suffix)), std::move(tensor));
}

ValueId Node::integers_value(const std::vector<int64_t>& values, std::string_view suffix) {
  const Dims dims = {static_cast<int64_t>(values.size())};
  return constant_value(Tensor::of<int64_t>(DataType::kI64, dims, values), suffix);
}

ValueId Node::sizes_value(const std::vector<Size>& values, std::string_view suffix) {
  std::vector<int64_t> integers;
  for (const Size size : values) {
    if (!size.known()) return layer(SizeTensor{.elements = values}, {}, suffix);
    integers.push_back(size.value());
  }
  return integers_value(integers, suffix);
}

}  // namespace anneal
