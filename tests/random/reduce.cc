#include "anneal/tests/random/reduce.h"

namespace anneal::random_graphs {
namespace {

class Reducer {
 public:
  Reducer(const Recipe& recipe, const Failure& failure, const Judge& judge)
      : recipe_(recipe), failure_(failure), judge_(judge) {}

  Recipe reduce() {
    for (bool changed = true; changed;) {
      changed = keep_one_output();
      changed = leave_out_steps() || changed;
      changed = shrink_sizes() || changed;
      changed = bypass_nodes() || changed;
    }
    return recipe_;
  }

 private:
  // Takes the recipe if it fails the same way.
  bool take(const Recipe& smaller) {
    std::optional<Failure> found;
    try {
      found = judge_(random_model(smaller), {.ways = {failure_.way}});
    } catch (const std::exception&) {
      return false;
    }
    if (!found || !same_fault(*found, failure_)) return false;
    recipe_ = smaller;
    return true;
  }
  bool keep_one_output() {
    const RandomModel model = random_model(recipe_);
    if (model.proto.graph().output_size() < 2) return false;
    for (const auto& output : model.proto.graph().output()) {
      Recipe smaller = recipe_;
      smaller.outputs = {output.name()};
      if (take(smaller)) return true;
    }
    for (const auto& output : model.proto.graph().output()) {
      Recipe smaller = recipe_;
      smaller.outputs.clear();
      for (const auto& other : model.proto.graph().output())
        if (other.name() != output.name()) smaller.outputs.insert(other.name());
      if (take(smaller)) return true;
    }
    return false;
  }
  bool leave_out_steps() {
    bool changed = false;
    const int steps = random_model(recipe_).steps;
    for (int step = steps - 1; step >= 0; --step) {
      if (recipe_.left_out.contains(step)) continue;
      Recipe smaller = recipe_;
      smaller.left_out.insert(step);
      changed = take(smaller) || changed;
    }
    return changed;
  }
  bool shrink_sizes() {
    bool changed = false;
    for (const int64_t largest : {1, 2, 3, 4, 6}) {
      Recipe smaller = recipe_;
      smaller.largest_size = largest;
      if (largest < recipe_.largest_size && take(smaller)) {
        changed = true;
        break;
      }
    }
    Recipe smaller = recipe_;
    smaller.constant_symbols = true;
    return (!recipe_.constant_symbols && take(smaller)) || changed;
  }
  bool bypass_nodes() {
    bool changed = false;
    std::vector<std::string> names;
    const auto add = [&](auto&& self, const anneal_onnx::GraphProto& graph) -> void {
      for (const auto& node : graph.node()) {
        names.push_back(node.output(0));
        for (const auto& attribute : node.attribute())
          if (attribute.has_g()) self(self, attribute.g());
      }
    };
    const RandomModel before = random_model(recipe_);
    add(add, before.proto.graph());
    for (const std::string& name : names) {
      Recipe smaller = recipe_;
      if (!smaller.bypassed.insert(name).second) continue;
      const RandomModel model = random_model(smaller);
      if (model.proto.SerializeAsString() == random_model(recipe_).proto.SerializeAsString())
        continue;
      changed = take(smaller) || changed;
    }
    return changed;
  }

  Recipe recipe_;
  const Failure& failure_;
  const Judge& judge_;
};

}  // namespace

Recipe reduced(const Recipe& recipe, const Failure& failure, const Judge& judge) {
  return Reducer(recipe, failure, judge).reduce();
}

}  // namespace anneal::random_graphs
