#include "anneal/engine/builder/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/engine/builder/views.h"

namespace anneal {
namespace {

// Values inside values inside values: as deep as this, so that hostile graphs end soon.
constexpr int kMostNested = 64;

// The axis along which elements lie side by side; -1 if there is none.
int unit_axis(const Shape& shape, const Shape& strides) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != Size(1) && strides[axis] == Size(1)) return axis;
  return -1;
}

class Placer {
 public:
  explicit Placer(const PlacementQuestion& question)
      : graph_(question.graph), question_(question) {}

  ValuePlacement run() {
    const auto order = graph_.order();
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      const Layer& layer = graph_.layer(*id);
      if (layer.outputs.size() != 1 || !layer.epilogues.empty()) continue;
      if (std::holds_alternative<Concat>(layer.op)) {
        if (!question_.copies_parts) place_operands(*id, layer);
      } else if (std::holds_alternative<Reshape>(layer.op) ||
                 std::holds_alternative<Transpose>(layer.op)) {
        place_source(*id, layer);
      }
    }
    for (const LayerId id : order) look_at(id);
    std::reverse(placement_.decisions.begin(), placement_.decisions.end());
    return std::move(placement_);
  }

 private:
  // The strides of a value with memory of its own, or with a known place in another value.
  Shape strides_of_value(ValueId id) const {
    const auto known = strides_.find(id);
    if (known != strides_.end()) return known->second;
    return is_port(id) && !is_appended_port(id)
               ? row_major_strides(graph_.value(id).type().shape, graph_.sizes())
               : question_.layouts.strides_of_value(graph_, id);
  }
  size_t place_of(LayerId id) const {
    return question_.layouts.of_layer[static_cast<size_t>(id)].place;
  }
  // Written straight to a port, which is row-major but for those of Layouts::ports.
  bool is_port(ValueId id) const {
    const LayerId producer = graph_.value(id).producer;
    return producer != LayerId::kNone && question_.port_place(id) == place_of(producer);
  }
  bool is_appended_port(ValueId id) const { return question_.layouts.ports.contains(id); }
  int depth_of(ValueId id) const {
    const auto known = depth_.find(id);
    return known == depth_.end() ? 0 : known->second;
  }
  void note(const Layer& layer, std::string text, bool refused = false, Saving saved = {}) {
    placement_.decisions.push_back(
        {"memory", layer.name, std::move(text), refused, saved.launches, saved.bytes});
  }

  // Why the value cannot be written anywhere but in memory of its own; empty if it can.
  std::string why_not_placed(ValueId value, size_t place) const {
    if (value == ValueId::kNone) return "is absent";
    const Value& info = graph_.value(value);
    if (info.constant) return "is a constant";
    if (info.producer == LayerId::kNone) return "is an input";
    if (placement_.inside.contains(value)) return "is part of another result already";
    if (question_.port_place(value)) return "is an output of the model";
    if (question_.late(value)) return "has a size that depends on values";
    if (info.fact.elements) return "decides shapes";
    const Layer& layer = graph_.layer(info.producer);
    if (!bodies_of(layer.op).empty()) return "comes from control flow";
    if (std::holds_alternative<SizeTensor>(layer.op)) return "decides shapes";
    if (place_of(info.producer) != place) return "is computed on another device";
    for (const LayerId user : info.users)
      if (place_of(user) != place) return "is read on another device";
    return {};
  }

  // The requirement on the layer that computes a value.
  enum class WriterRequirement : uint8_t {
    kAnyKernel,  // whatever writes it, a copy at worst: else a copy is needed anyway
    kNoCopy,     // the kernel that computes it, and runs of elements stay runs
  };

  // Whether the producer takes these strides for the value: empty, or why not.
  std::string ask_producer(ValueId value, const Shape& strides, WriterRequirement wanted,
                           int depth) const {
    const LayerId id = graph_.value(value).producer;
    const Layer& layer = graph_.layer(id);
    if (is_view_op(layer.op) && layer.epilogues.empty()) {
      // A Reshape or Transpose passes the question on when its turn comes, or copies.
      const auto within = std::holds_alternative<Slice>(layer.op)
                              ? std::nullopt
                              : operand_within(graph_, layer, 0, strides);
      if (!within || depth >= kMostNested)
        return fmt::format("is a view made by {} \"{}\"", to_string(layer.op), layer.name);
      if (wanted == WriterRequirement::kAnyKernel) return {};
      std::string why_not = why_not_placed(layer.inputs[0], place_of(id));
      if (!why_not.empty()) return why_not;
      if (graph_.value(layer.inputs[0]).users.size() != 1) return "is read otherwise too";
      return ask_producer(layer.inputs[0], within->strides, wanted, depth + 1);
    }
    if (std::holds_alternative<Concat>(layer.op) && layer.epilogues.empty()) return {};
    const auto output = std::find(layer.outputs.begin(), layer.outputs.end(), value);
    const auto index = static_cast<size_t>(output - layer.outputs.begin());
    return ask(
        id, [&](LayerOperands& operands) -> Operand& { return operands.outputs[index]; }, strides,
        wanted == WriterRequirement::kNoCopy);
  }

  // Whether the layer's best kernel, or a better one, takes other strides for one operand.
  template <class Pick>
  std::string ask(LayerId id, Pick pick, const Shape& strides, bool keep_runs) const {
    const Layer& layer = graph_.layer(id);
    const Place& place = question_.places[place_of(id)];
    const Layout layout = question_.layouts.of_layer[static_cast<size_t>(id)].layout;
    LayerOperands operands = ideal_operands(graph_, layer, layout);
    Operand& operand = pick(operands);
    if (operand.strides == strides) return {};
    const Shape ideal = operand.strides;
    const auto choose = [&] { return choose_kernel(place, graph_, layer, operands); };
    const KernelChoice best = choose();
    const bool same_runs =
        unit_axis(operand.type.shape, ideal) == unit_axis(operand.type.shape, strides);
    if (keep_runs && !same_runs) return "its contiguous elements would be split";
    operand.strides = strides;
    const KernelChoice chosen = choose();
    if (!chosen.entry)
      return fmt::format("has no kernel that takes its place{}", refusals_text(chosen));
    if (best.entry && chosen.refused.size() > best.refused.size())
      return fmt::format("does not suit {}: {}", best.entry->name,
                         chosen.refused[best.refused.size()].second);
    return {};
  }

  // Empty if it is placed, else why not.
  std::string try_place(LayerId by, size_t operand, WriterRequirement wanted) {
    const Layer& layer = graph_.layer(by);
    const ValueId value = layer.inputs[operand], whole = layer.outputs[0];
    if (std::string reason = why_not_placed(value, place_of_whole(by)); !reason.empty())
      return reason;
    const auto within = operand_within(graph_, layer, operand, strides_of_value(whole));
    if (!within || depth_of(whole) >= kMostNested) return "would have to be moved";
    if (std::string reason = ask_producer(value, within->strides, wanted, 0); !reason.empty())
      return reason;
    placement_.inside[value] = {by, operand};
    strides_[value] = within->strides;
    depth_[value] = depth_of(whole) + 1;
    return {};
  }

  // Where the result of the layer will lie.
  size_t place_of_whole(LayerId by) const {
    const ValueId whole = graph_.layer(by).outputs[0];
    const auto inside = placement_.inside.find(whole);
    return inside == placement_.inside.end() ? place_of(by) : place_of_whole(inside->second.by);
  }

  void place_operands(LayerId id, const Layer& layer) {
    const ValueId whole = layer.outputs[0];
    if (question_.late(whole) || graph_.value(whole).fact.elements) return;
    // A view of a size that values decide has no place before they are there.
    if (std::any_of(layer.inputs.begin(), layer.inputs.end(), question_.late))
      return note(layer, "its operands have sizes that depend on values", true);
    bool all = true;
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      // What a state appends to lies there already.
      if (is_appended_port(layer.inputs[i]) && is_appended_port(whole)) continue;
      const std::string why_not = try_place(id, i, WriterRequirement::kAnyKernel);
      const bool placed = why_not.empty();
      const std::string& operand = graph_.value(layer.inputs[i]).name;
      all &= placed;
      if (placed)
        note(layer, fmt::format("\"{}\" is written at its place", operand), false,
             {0, saving_of(graph_, layer.inputs[i]).bytes});
      else
        note(layer, fmt::format("\"{}\" is copied: it {}", operand, why_not), true);
    }
    if (all) note(layer, "needs no step", false, {1, 0});
  }

  // The input of a Reshape or Transpose, written as the output lies.
  void place_source(LayerId id, const Layer& layer) {
    const ValueId source = layer.inputs[0], whole = layer.outputs[0];
    if (question_.late(whole) || source == ValueId::kNone) return;
    const bool fixed = placement_.inside.contains(whole) || is_port(whole);
    if (!fixed && std::holds_alternative<Reshape>(layer.op)) return;
    if (graph_.value(source).users.size() != 1) return;
    if (!fixed && readers_take(id, strides_of_value(source)).empty()) return;
    const auto wanted = fixed ? WriterRequirement::kAnyKernel : WriterRequirement::kNoCopy;
    if (try_place(id, 0, wanted).empty())
      note(layer,
           fmt::format("\"{}\" is written with the strides of its output",
                       graph_.value(source).name),
           false, saving_of(graph_, source));
  }

  // Transposes whose input lies somewhere already: views, if all that read them take the strides.
  void look_at(LayerId id) {
    const Layer& layer = graph_.layer(id);
    if (!is_view_op(layer.op) || layer.outputs.size() != 1 || layer.inputs.empty() ||
        layer.inputs[0] == ValueId::kNone)
      return;
    if (question_.copies_parts && std::holds_alternative<Slice>(layer.op)) return;
    const ValueId source = layer.inputs[0], output = layer.outputs[0];
    if (placement_.inside.contains(source) && placement_.inside[source].by == id) return;
    if (placement_.inside.contains(output) || is_port(output) || question_.late(source) ||
        question_.late(output) || graph_.value(output).fact.elements)
      return;
    const Shape from = strides_of_value(source);
    if (const auto view = view_of(graph_, layer, from)) {
      strides_[output] = view->strides;
      return;
    }
    if (std::string why_not = readers_take(id, from); !why_not.empty()) {
      if (std::holds_alternative<Transpose>(layer.op)) note(layer, std::move(why_not), true);
      return;
    }
    placement_.moved_views.insert(id);
    strides_[output] = view_of(graph_, layer, from, Moved::kIsView)->strides;
    note(layer, "is a view: its readers take its strides", false, saving_of(graph_, output));
  }

  // Whether an input of the model lies where this view of it is read: all is on the host, or the
  // input is copied to the device as a whole.
  bool is_where_it_is_read(ValueId input, ValueId view) const {
    const size_t host = question_.places.size() - 1;
    if (graph_.constant(input)) return false;
    return host == 0 ||
           (!question_.readers.are_on(host, view) && question_.readers.want_all_on(0, input));
  }

  // Whether all readers of a Transpose take its output as a view of its input: empty, or why not.
  std::string readers_take(LayerId id, const Shape& from) const {
    const Layer& layer = graph_.layer(id);
    const auto moved = view_of(graph_, layer, from, Moved::kIsView);
    if (!moved) return "is no view";
    if (graph_.value(layer.inputs[0]).producer == LayerId::kNone &&
        !is_where_it_is_read(layer.inputs[0], layer.outputs[0]))
      return "moves the elements of an input of the model";
    for (const LayerId user : graph_.value(layer.outputs[0]).users)
      if (const std::string why_not = ask_reader(user, layer.outputs[0], moved->strides);
          !why_not.empty())
        return fmt::format("moves elements for \"{}\": {}", graph_.layer(user).name, why_not);
    return {};
  }

  std::string ask_reader(LayerId id, ValueId value, const Shape& strides) const {
    const Layer& layer = graph_.layer(id);
    if (!bodies_of(layer.op).empty()) return "control flow reads dense memory";
    if (is_view_op(layer.op) && layer.epilogues.empty())
      return view_of(graph_, layer, strides) ? "" : "it needs its elements in order";
    const bool is_product = std::holds_alternative<MatMul>(layer.op);
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      if (layer.inputs[i] != value) continue;
      const Shape& shape = graph_.value(value).type().shape;
      // A product packs its operands, along either of their last two axes.
      const bool packs = is_product && i < 2 && unit_axis(shape, strides) >= shape.rank() - 2;
      std::string why_not = ask(
          id, [&](LayerOperands& operands) -> Operand& { return operands.inputs[i]; }, strides,
          !packs);
      if (!why_not.empty()) return why_not;
    }
    return {};
  }

  const Graph& graph_;
  const PlacementQuestion& question_;
  ValuePlacement placement_;
  std::unordered_map<ValueId, Shape> strides_;
  std::unordered_map<ValueId, int> depth_;
};

}  // namespace

ValuePlacement place_values(const PlacementQuestion& question) { return Placer(question).run(); }

}  // namespace anneal
