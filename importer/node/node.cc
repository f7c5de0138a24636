#include "anneal/importer/node/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
Node::Node(Model& model, std::string name, int opset, std::vector<Attribute> attributes,
           std::vector<ValueId> inputs, std::vector<std::string> output_names)
    : NodeInputs(model.graph, std::move(inputs)),
      NodeAttributes(std::move(attributes), model.folder),
      model_(model),
      name_(std::move(name)),
      opset_(opset),
      output_names_(std::move(output_names)) {}

void Node::invalid(const std::string& why) const { fail(ErrorCode::kInvalidModel, why); }
void Node::unsupported(const std::string& why) const { fail(ErrorCode::kUnsupported, why); }

int64_t Node::resolve_axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) invalid(fmt::format("axis {} of {} axes", axis, rank));
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> Node::resolve_axes(std::vector<int64_t> axes, int rank) const {
  for (int64_t& axis : axes) axis = resolve_axis(axis, rank);
  std::ranges::sort(axes);
  const auto twice = std::ranges::adjacent_find(axes);
  if (twice != axes.end()) invalid(fmt::format("axis {} is given twice", *twice));
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

std::string Node::why_left_out(int output) const {
  const auto found = left_out_.find(output);
  return found == left_out_.end() ? fmt::format("output {} is not computed", output)
                                  : found->second;
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
                                   const std::vector<ValueId>& further_inputs,
                                   std::string_view suffix) {
  NewLayer layer{.name = layer_name(suffix), .op = std::move(op), .inputs = std::move(inputs)};
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.inputs.insert(layer.inputs.end(), further_inputs.begin(), further_inputs.end());
  layer.epilogues = {std::move(epilogue)};
  layer.origins = {name_};
  layer.output_names = {suffix.empty() ? output_name(0) : free_value_name(layer.name)};
  return graph().layer(graph().add(std::move(layer))).outputs;
}

Outputs Node::results(Op op, std::vector<ValueId> inputs) {
  NewLayer layer{.name = name_, .op = std::move(op), .inputs = std::move(inputs)};
  layer.origins = {name_};
  for (int i = 0; i < output_count(); ++i) layer.output_names.push_back(output_name(i));
  return graph().layer(graph().add(std::move(layer))).outputs;
}

ValueId Node::result_constant(Tensor tensor, int32_t narrow_type) {
  const ValueId constant = graph().add_constant(output_name(0), std::move(tensor));
  if (narrow_type != 0) set_narrow_type(constant, narrow_type);
  return constant;
}

ValueId Node::constant_value(Tensor tensor, std::string_view suffix) {
  return graph().add_constant(free_value_name(layer_name(suffix)), std::move(tensor));
}

ValueId Node::integers_value(const std::vector<int64_t>& values, std::string_view suffix) {
  const Dims dims = {static_cast<int64_t>(values.size())};
  return constant_value(Tensor::of<int64_t>(DataType::kI64, dims, values), suffix);
}

int32_t Node::narrow_type(int index) const {
  if (!has_input(index)) return 0;
  const auto found = model_.narrow_types.find(input(index));
  return found == model_.narrow_types.end() ? 0 : found->second;
}

void Node::set_narrow_type(ValueId value, int32_t element_type) {
  model_.narrow_types[value] = element_type;
}

bool Node::assume(const std::string& name, bool at_first) {
  auto choice = model_.choices->find(name);
  if (!choice) choice = model_.choices->add(name, false, at_first);
  return choice == RankChoices::Choice::kThen;
}

std::optional<int> Node::batch_axis(int x) const {
  for (int axis = 0; batch() && axis < rank(x); ++axis)
    if (shape(x)[axis] == batch()->rows) return axis;
  return std::nullopt;
}

std::vector<Size> Node::with_batch(int x, std::vector<Size> sizes) const {
  if (has_batch(x) && !sizes.empty() && sizes[0] == Size(batch()->in_model))
    sizes[0] = batch()->rows;
  return sizes;
}

ValueId Node::repeated_for_batch(int x, int axis) {
  const Shape& own = shape(x);
  if (batch()->in_model != 1 || axis >= own.rank() || !(own[axis] == Size(1))) return input(x);
  std::vector<Size> sizes(own.begin(), own.end());
  sizes[static_cast<size_t>(axis)] = batch()->rows;
  const std::string suffix = fmt::format("rows_of_{}", x);
  return layer(Expand{}, {input(x), sizes_value(sizes, suffix + "/sizes")}, suffix);
}

ValueId Node::sizes_input(int x, int sizes) {
  if (!has_batch(x)) return input(sizes);
  const auto known = known_sizes(sizes);
  if (!known) return input(sizes);
  const std::vector<Size> opened = with_batch(x, *known);
  return opened == *known ? input(sizes) : sizes_value(opened, "with_batch");
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
