// A Loop whose iterations are counted while importing: the graph has its body once for each.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/loop_body.h"
#include "anneal/importer/graph/stack.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;
using State = ScopedValue::State;

// Whether a condition or a number of iterations, if it is there, is at least 1.
bool is_positive(const Node& node, ValueId value, const std::string& what) {
  if (value == ValueId::kNone) return true;
  const auto& elements = node.graph().value(value).fact.elements;
  if (!elements || elements->size() != 1 || !elements->front().known())
    node.unsupported(what + " known only at run time, where the loop changes or reads a sequence");
  return elements->front().value() >= 1;
}

class LoopUnroller {
 public:
  LoopUnroller(const NodeProto& proto, Node& node, Scope& scope, NodeImporter& nodes)
      : proto_(proto),
        node_(node),
        scope_(scope),
        nodes_(nodes),
        body_(graph_attribute(proto, node, "body")),
        carried_(static_cast<size_t>(std::max(proto.input_size() - 2, 0))),
        values_(carried_) {}

  std::optional<std::vector<ScopedValue>> import();

 private:
  int64_t most_iterations() const;
  // False if something in the body is not supported, which has been reported.
  bool add_iteration(int64_t number);

  const NodeProto& proto_;
  Node& node_;
  Scope& scope_;
  NodeImporter& nodes_;
  const GraphProto& body_;
  const size_t carried_;
  std::vector<ScopedValue> values_;
  ValueId goes_on_ = ValueId::kNone;
  std::vector<std::vector<ValueId>> elements_;  // of stacked results
};

std::optional<std::vector<ScopedValue>> LoopUnroller::import() {
  if (static_cast<size_t>(body_.input_size()) != 2 + carried_ ||
      static_cast<size_t>(body_.output_size()) < 1 + carried_)
    node_.invalid("a body with other inputs and outputs than its Loop");
  for (size_t k = 0; k < carried_; ++k)
    values_[k] = scope_.use(proto_.input(static_cast<int>(2 + k)), nodes_.context().unsupported);
  elements_.resize(static_cast<size_t>(body_.output_size()) - 1 - carried_);
  goes_on_ = node_.optional_input(1);
  const int64_t most = most_iterations();
  int64_t number = 0;
  for (; number < most && is_positive(node_, goes_on_, "a condition"); ++number)
    if (!add_iteration(number)) return std::nullopt;
  if (number == most && !node_.has_input(0) && is_positive(node_, goes_on_, "a condition"))
    node_.unsupported(
        fmt::format("more than {} iterations that change or read a sequence", kMostUnrolled));
  std::vector<ScopedValue> results = values_;
  for (size_t k = 0; k < elements_.size(); ++k) {
    if (elements_[k].empty()) node_.unsupported("stacked results of no iteration");
    for (const ValueId element : elements_[k]) expect_same_type(node_, element, elements_[k][0]);
    const ScopedValue sequence{.state = State::kSequence, .sequence = elements_[k]};
    results.push_back({State::kImported, stacked(node_, sequence, fmt::format("stacked{}", k))});
  }
  results.resize(static_cast<size_t>(proto_.output_size()));
  return results;
}

int64_t LoopUnroller::most_iterations() const {
  if (node_.optional_input(0) == ValueId::kNone) return kMostUnrolled;
  if (!is_positive(node_, node_.input(0), "a number of iterations")) return 0;
  const int64_t trips = node_.graph().value(node_.input(0)).fact.elements->front().value();
  if (trips > kMostUnrolled)
    node_.unsupported(fmt::format("{} iterations that change or read a sequence, of {} at most",
                                  trips, kMostUnrolled));
  return trips;
}

bool LoopUnroller::add_iteration(int64_t number) {
  Scope inner = scope_.body_scope(fmt::format("{}/{}/", node_.name(), number));
  const auto constant = [&](const Tensor& tensor, const char* name) {
    return ScopedValue{State::kImported,
                       node_.constant_value(tensor, fmt::format("{}/{}", number, name))};
  };
  const Dims dims = counts_with_axis(body_) ? Dims{1} : Dims{};
  inner.define(body_.input(0).name(),
               constant(Tensor::of<int64_t>(DataType::kI64, dims, {{number}}), "iteration"));
  inner.define(body_.input(1).name(),
               constant(Tensor::of<uint8_t>(DataType::kBool, {}, {{1}}), "goes_on"));
  for (size_t k = 0; k < carried_; ++k)
    inner.define(body_.input(static_cast<int>(2 + k)).name(), values_[k]);
  nodes_.import_initializers(body_, inner);
  nodes_.import_nodes(body_.node(), names_of_outputs(body_), inner);
  std::vector<ScopedValue> results;
  for (const auto& output : body_.output()) {
    results.push_back(inner.use(output.name(), nodes_.context().unsupported));
    if (results.back().state != State::kImported && !is_sequence(results.back())) return false;
  }
  if (is_sequence(results[0])) node_.invalid("a condition that is a sequence");
  goes_on_ = results[0].value;
  std::copy_n(results.begin() + 1, carried_, values_.begin());
  for (size_t k = 0; k < elements_.size(); ++k) {
    if (is_sequence(results[1 + carried_ + k]))
      node_.invalid(fmt::format("stacked result {} is a sequence", k));
    elements_[k].push_back(results[1 + carried_ + k].value);
  }
  return true;
}

}  // namespace

std::optional<std::vector<ScopedValue>> import_unrolled_loop(const NodeProto& proto, Node& node,
                                                             Scope& scope, NodeImporter& nodes) {
  return LoopUnroller(proto, node, scope, nodes).import();
}

}  // namespace anneal
