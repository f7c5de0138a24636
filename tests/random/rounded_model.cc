#include "anneal/tests/random/rounded_model.h"

#include <set>

#include "anneal/tests/random/random_numbers.h"

namespace anneal::random_graphs {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;

// A small change of an operand may change their results by any amount.
bool is_step_function(const NodeProto& node, const std::map<std::string, Value>& facts) {
  static const std::set<std::string, std::less<>> kNames = {"Floor",
                                                            "Ceil",
                                                            "Round",
                                                            "Sign",
                                                            "ArgMax",
                                                            "ArgMin",
                                                            "TopK",
                                                            "Less",
                                                            "Greater",
                                                            "Equal",
                                                            "LessOrEqual",
                                                            "GreaterOrEqual",
                                                            "NonZero",
                                                            "Hardmax",
                                                            "QuantizeLinear",
                                                            "If",
                                                            "Mod",
                                                            "ThresholdedRelu",
                                                            "Shrink",
                                                            "DynamicQuantizeLinear",
                                                            "OneHot"};
  if (kNames.contains(node.op_type())) return true;
  if (node.op_type() != "Cast") return false;
  const auto found = facts.find(node.output(0));
  return found != facts.end() && found->second.type != onnx::FLOAT;
}

template <class F>
void for_each_node(const GraphProto& graph, const F& f) {
  for (const auto& node : graph.node()) {
    f(node);
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) for_each_node(attribute.g(), f);
  }
}

void add_names(const NodeProto& node, std::set<std::string>& names) {
  names.insert(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (const auto& inner : attribute.g().node()) add_names(inner, names);
    for (const auto& output : attribute.g().output()) names.insert(output.name());
    for (const auto& input : attribute.g().input()) names.insert(input.name());
  }
}

// Its first operand loses the mean within the node: equal elements leave the rounding
// of each, which a change of the whole operand does not show.
bool subtracts_a_mean(const NodeProto& node) {
  static const std::set<std::string, std::less<>> kNames = {
      "LayerNormalization", "GroupNormalization", "InstanceNormalization",
      "MeanVarianceNormalization"};
  return kNames.contains(node.op_type());
}

// The values that step functions follow from.
std::set<std::string> deciding(const RandomModel& model) {
  std::set<std::string> names;
  for (size_t before = 1; before != names.size();) {
    before = names.size();
    for_each_node(model.proto.graph(), [&](const NodeProto& node) {
      const bool decides = is_step_function(node, model.facts) ||
                           std::ranges::any_of(node.output(), [&](const auto& name) {
                             return names.contains(name);
                           });
      if (!decides) return;
      if (node.op_type() == "If" && !std::ranges::any_of(node.output(), [&](const auto& name) {
            return names.contains(name);
          }))
        names.insert(node.input(0));
      else
        add_names(node, names);
    });
    if (before == 0 && names.empty()) break;
  }
  return names;
}

class Rounder {
 public:
  Rounder(const RandomModel& model, int type, uint64_t seed)
      : model_(model), type_(type), is_disturbed_(type == onnx::FLOAT || seed > 0), random_(seed) {
    if (type != onnx::FLOAT) exact_ = deciding(model);
  }

  void round(GraphProto& graph, bool top) {
    GraphProto rounded = graph;
    rounded.clear_node();
    if (top) {
      for (const auto& input : graph.input()) round_read(rounded, input.name());
      for (const auto& tensor : graph.initializer()) round_read(rounded, tensor.name());
    }
    for (auto node : graph.node()) {
      for (auto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) round(*attribute.mutable_g(), false);
      std::vector<std::string> names;
      for (auto& output : *node.mutable_output()) {
        if (!rounds(output)) continue;
        names.push_back(output);
        output += "_raw";
      }
      if (is_disturbed_ && subtracts_a_mean(node)) {
        const std::string disturbed = node.output(0) + "_operand";
        disturb_each(rounded, node.input(0), disturbed);
        node.set_input(0, disturbed);
      }
      *rounded.add_node() = node;
      for (const std::string& name : names) add_rounding(rounded, name + "_raw", name);
    }
    graph.Swap(&rounded);
    if (top) rename(graph);
  }

 private:
  bool rounds(const std::string& name) const {
    const auto found = model_.facts.find(name);
    if (found == model_.facts.end() || !found->second.is_float()) return false;
    if (is_disturbed_ && found->second.exact()) return false;  // a scale of sizes, too
    return type_ == onnx::FLOAT || !exact_.contains(name);
  }
  // What no node makes: its readers read another value.
  void round_read(GraphProto& graph, const std::string& name) {
    if (!rounds(name)) return;
    add_rounding(graph, name, name + "_rounded");
    renamed_.insert(name);
  }
  static NodeProto& add_node(GraphProto& graph, const char* op,
                             const std::vector<std::string>& inputs, const std::string& output) {
    auto& added = *graph.add_node();
    added.set_op_type(op);
    for (const auto& input : inputs) added.add_input(input);
    added.add_output(output);
    return added;
  }
  static anneal_onnx::TensorProto& add_constant(GraphProto& graph, const std::string& name,
                                                int type) {
    auto& node = add_node(graph, "Constant", {}, name);
    auto& tensor = *attribute(node, "value", anneal_onnx::AttributeProto::TENSOR).mutable_t();
    tensor.set_data_type(type);
    return tensor;
  }
  static void add_number(GraphProto& graph, const std::string& name, double value) {
    add_constant(graph, name, onnx::FLOAT).add_float_data(static_cast<float>(value));
  }
  // from * (1 + c * sin(1000 * of)), and another factor for the whole.
  void disturb(GraphProto& graph, const std::string& from, const std::string& of,
               const std::string& to) {
    const double unit = type_ == onnx::FLOAT ? 0x1p-20 : type_ == onnx::FLOAT16 ? 0x1p-12 : 0x1p-9;
    add_number(graph, to + "_1000", 1000 + random_.uniform(-100, 100));
    add_number(graph, to + "_c", random_.uniform(1, 2) * unit);
    add_number(graph, to + "_1", 1 + random_.uniform(-1, 1) * unit);
    add_node(graph, "Mul", {of, to + "_1000"}, to + "_argument");
    add_node(graph, "Sin", {to + "_argument"}, to + "_sine");
    add_node(graph, "Mul", {to + "_sine", to + "_c"}, to + "_change");
    add_node(graph, "Add", {to + "_change", to + "_1"}, to + "_factor");
    add_node(graph, "Mul", {from, to + "_factor"}, to);
  }
  // Another factor for each element, also for equal ones: by its place.
  void disturb_each(GraphProto& graph, const std::string& from, const std::string& to) {
    for (const auto& [name, value] : {std::pair("_zero", 0), std::pair("_step", 1)})
      add_constant(graph, to + name, onnx::INT64).add_int64_data(value);
    add_node(graph, "Shape", {from}, to + "_shape");
    add_node(graph, "Size", {from}, to + "_size");
    add_node(graph, "Range", {to + "_zero", to + "_size", to + "_step"}, to + "_range");
    set(add_node(graph, "Cast", {to + "_range"}, to + "_floats"), "to", int64_t{onnx::FLOAT});
    add_node(graph, "Reshape", {to + "_floats", to + "_shape"}, to + "_places");
    disturb(graph, from, to + "_places", to);
  }
  void add_rounding(GraphProto& graph, const std::string& from, const std::string& to) {
    // Another factor for each element, so that sums of many show.
    if (is_disturbed_) return disturb(graph, from, from, to);
    for (const bool back : {false, true}) {
      auto& node = *graph.add_node();
      node.set_op_type("Cast");
      node.add_input(back ? to + "_stored" : from);
      node.add_output(back ? to : to + "_stored");
      set(node, "to", int64_t{back ? onnx::FLOAT : type_});
    }
  }
  void rename(GraphProto& graph) {
    for (auto& node : *graph.mutable_node()) {
      for (auto& input : *node.mutable_input())
        if (renamed_.contains(input) && !node.output(0).starts_with(input + "_rounded"))
          input += "_rounded";
      for (auto& attribute : *node.mutable_attribute())
        if (attribute.has_g()) rename(*attribute.mutable_g());
    }
  }

  const RandomModel& model_;
  const int type_;
  const bool is_disturbed_;  // else rounded to the type
  RandomNumbers random_;
  std::set<std::string> exact_, renamed_;
};

}  // namespace

anneal_onnx::ModelProto rounded_model(const RandomModel& model, int type, uint64_t seed) {
  anneal_onnx::ModelProto result = model.proto;
  Rounder(model, type, seed).round(*result.mutable_graph(), true);
  return result;
}

}  // namespace anneal::random_graphs
