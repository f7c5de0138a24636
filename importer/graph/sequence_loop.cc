// Loops of sequences. A short one whose iterations are counted while importing is unrolled. Any
// other one becomes a Loop without sequences: those that it reads from outside are stacks, and what
// its iterations append to a sequence that it carries is a stacked result; or, where the sizes of
// these tensors differ and the sequence is only concatenated, it carries the concatenated tensor.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/graph/control_flow.h"
#include "anneal/importer/graph/node_order.h"
#include "anneal/importer/graph/stack.h"
#include "anneal/importer/node/attempt.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

using anneal_onnx::GraphProto;
using anneal_onnx::NodeProto;
using State = ScopedValue::State;

constexpr int64_t kShortLoop = 64;  // iterations

// The names outside that the bodies of a node read, each once.
std::vector<std::string> names_from_outside(const NodeProto& proto) {
  std::vector<std::string> names;
  for (const auto& attribute : proto.attribute())
    if (attribute.has_g())
      for_values_from_outside(attribute.g(), [&](const std::string& name) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      });
  return names;
}

GraphProto& body_of(NodeProto& loop) {
  for (auto& attribute : *loop.mutable_attribute())
    if (attribute.name() == "body") return *attribute.mutable_g();
  fail(ErrorCode::kInvalidModel, "attribute \"body\" is missing");
}

// What a Loop becomes without the sequences that it carries.
struct PlainLoop {
  NodeProto loop;
  std::shared_ptr<const void> file;  // of the model that `loop` is from
  // Of each carried sequence: its place among the carried values, and how many stacked results,
  // which come last, have what an iteration appends, in order.
  struct Appended {
    int place;
    int count;
  };
  std::vector<Appended> sequences;
};

// Takes the sequences out of a Loop. Fails with kUnsupported if its body does more with one than
// append to it.
class SequenceRemover {
 public:
  // axes: by the place of a sequence among the carried values, the axis along which the Loop
  // carries its tensors concatenated.
  SequenceRemover(const NodeProto& proto, const Node& node, const Scope& scope,
                  const std::map<int, int64_t>& axes)
      : proto_(proto),
        node_(node),
        scope_(scope),
        axes_(axes),
        plain_(std::make_shared<PlainLoop>()) {
    plain_->loop = proto;
    plain_->file = scope.model->file;
  }
  std::shared_ptr<PlainLoop> run();

 private:
  // The nodes of the body that append to the sequence, from the last to the first.
  std::vector<int> find_chain(const std::string& begin, const std::string& end) const;
  void check_readers(const std::string& begin, const std::vector<int>& chain) const;
  int producer(const std::string& name) const;
  static void concatenate(int64_t axis, NodeProto& insertion);

  const NodeProto& proto_;
  const Node& node_;
  const Scope& scope_;
  const std::map<int, int64_t>& axes_;
  std::shared_ptr<PlainLoop> plain_;
};

int SequenceRemover::producer(const std::string& name) const {
  const GraphProto& body = body_of(plain_->loop);
  for (int i = 0; i < body.node_size(); ++i)
    if (std::ranges::find(body.node(i).output(), name) != body.node(i).output().end()) return i;
  node_.unsupported("a carried sequence to which an iteration does not append");
}

std::vector<int> SequenceRemover::find_chain(const std::string& begin,
                                             const std::string& end) const {
  std::vector<int> chain;
  for (std::string name = end; name != begin;) {
    chain.push_back(producer(name));
    const NodeProto& last = body_of(plain_->loop).node(chain.back());
    const bool appends = is_sequence_operator(last) && last.op_type() == "SequenceInsert" &&
                         last.input_size() >= 2 &&
                         (last.input_size() == 2 || last.input(2).empty());
    if (!appends &&
        !(last.domain().empty() && last.op_type() == "Identity" && last.input_size() == 1))
      node_.unsupported(
          fmt::format("{} of a sequence that the loop carries, whose number of iterations only a "
                      "run knows",
                      last.op_type()));
    name = last.input(0);
    if (chain.size() > static_cast<size_t>(body_of(plain_->loop).node_size()))
      node_.invalid("a cycle in the body");
  }
  return chain;
}

// Nothing but the chain reads what it makes.
void SequenceRemover::check_readers(const std::string& begin, const std::vector<int>& chain) const {
  const GraphProto& body = body_of(plain_->loop);
  std::vector<std::string> made = {begin};
  for (const int i : chain) made.push_back(body.node(i).output(0));
  int reads = 0;
  const VisitName count = [&](const std::string& name) {
    reads += static_cast<int>(std::ranges::count(made, name));
  };
  for (const NodeProto& each : body.node()) {
    for (const std::string& input : each.input()) count(input);
    for (const auto& attribute : each.attribute())
      if (attribute.has_g()) for_values_from_outside(attribute.g(), count);
  }
  for (const auto& output : body.output()) count(output.name());
  if (reads != static_cast<int>(made.size()))
    node_.unsupported(
        "a body that reads the sequence to which it appends, and whose number of iterations only a "
        "run knows");
}

// In place of a SequenceInsert.
void SequenceRemover::concatenate(int64_t axis, NodeProto& insertion) {
  if (insertion.op_type() != "SequenceInsert") return;
  insertion.set_op_type("Concat");
  auto* const attribute = insertion.add_attribute();
  attribute->set_name("axis");
  attribute->set_type(anneal_onnx::AttributeProto::INT);
  attribute->set_i(axis);
}

std::shared_ptr<PlainLoop> SequenceRemover::run() {
  NodeProto& loop = plain_->loop;
  GraphProto& body = body_of(loop);
  const int carried = std::max(proto_.input_size() - 2, 0);
  if (body.input_size() != 2 + carried || body.output_size() < 1 + carried)
    node_.invalid("a body with other inputs and outputs than its Loop");
  while (loop.output_size() < body.output_size() - 1) loop.add_output("");
  std::vector<bool> is_removed(static_cast<size_t>(body.node_size()));
  std::vector<std::string> appended;
  std::vector<int> places;
  for (int k = 0; k < carried; ++k) {
    const ScopedValue* const start = scope_.find(proto_.input(2 + k));
    if (!start || !is_sequence(*start)) continue;
    const std::string begin = body.input(2 + k).name();
    const std::vector<int> chain = find_chain(begin, body.output(1 + k).name());
    check_readers(begin, chain);
    int count = 0;
    if (const auto axis = axes_.find(k); axis != axes_.end()) {
      for (const int i : chain) concatenate(axis->second, *body.mutable_node(i));
      continue;
    }
    for (auto i = chain.rbegin(); i != chain.rend(); ++i) {
      is_removed[static_cast<size_t>(*i)] = true;
      if (body.node(*i).op_type() != "SequenceInsert") continue;
      appended.push_back(body.node(*i).input(1));
      ++count;
    }
    plain_->sequences.push_back({k, count});
    places.push_back(k);
  }
  for (auto k = places.rbegin(); k != places.rend(); ++k) {
    loop.mutable_input()->DeleteSubrange(2 + *k, 1);
    loop.mutable_output()->DeleteSubrange(*k, 1);
    body.mutable_input()->DeleteSubrange(2 + *k, 1);
    body.mutable_output()->DeleteSubrange(1 + *k, 1);
  }
  for (int i = body.node_size(); i-- > 0;)
    if (is_removed[static_cast<size_t>(i)]) body.mutable_node()->DeleteSubrange(i, 1);
  for (size_t i = 0; i < appended.size(); ++i) {
    body.add_output()->set_name(appended[i]);
    loop.add_output(fmt::format("{}/appended{}", node_.name(), i));
  }
  return std::move(plain_);
}

// Results of the Loop without sequences as those of the Loop with them.
class SequenceLoop {
 public:
  SequenceLoop(const NodeProto& proto, Node& node, Scope& scope, NodeImporter& nodes)
      : proto_(proto), node_(node), scope_(scope), nodes_(nodes) {}
  std::optional<std::vector<ScopedValue>> import();

 private:
  using Results = std::optional<std::vector<ScopedValue>>;

  bool is_counted(int64_t most) const;
  Results import_without_sequences();
  std::optional<Outputs> import_plain(const std::shared_ptr<PlainLoop>& plain);
  Results results_of(const PlainLoop& plain, const Outputs& outputs);
  // Of sequences whose tensors differ in size: the axis along which each is concatenated.
  std::map<int, int64_t> axes_of_joined(const PlainLoop& plain, const Outputs& outputs);
  std::optional<int64_t> only_concatenated(const std::string& name, int rank) const;
  bool is_known_outside(Size size) const;
  ValueId nothing(const Type& stack, int64_t axis, int place);
  ScopedValue start_of(int place) {
    return scope_.use(proto_.input(2 + place), nodes_.context().unsupported);
  }
  ScopedValue with_appended(const ScopedValue& start, std::vector<ValueId> appended, int place);

  const NodeProto& proto_;
  Node& node_;
  Scope& scope_;
  NodeImporter& nodes_;
  std::map<int, int64_t> axes_;        // as of SequenceRemover
  std::map<int, ValueId> beginnings_;  // of these sequences: tensors without elements
};

// Whether the iterations may be known while importing: without a trip count the condition decides.
bool SequenceLoop::is_counted(int64_t most) const {
  if (!node_.has_input(0)) return most == kMostUnrolled;
  const auto trips = node_.known_integers(0);
  return trips && trips->size() == 1 && trips->front() <= most;
}

SequenceLoop::Results SequenceLoop::import() {
  if (proto_.output_size() >= graph_attribute(proto_, node_, "body").output_size())
    node_.invalid("more outputs than the body has");
  if (!is_counted(kMostUnrolled)) return import_without_sequences();
  const UnsupportedReport before = nodes_.context().unsupported;
  const bool is_short = is_counted(kShortLoop);
  const auto import_as = [&](bool unrolls) {
    return attempt([&] {
      return unrolls ? import_unrolled_loop(proto_, node_, scope_, nodes_)
                     : import_without_sequences();
    });
  };
  auto first = import_as(is_short);
  if (first) return *std::move(first);
  if (first.error().code() != ErrorCode::kUnsupported) throw first.error();
  nodes_.context().unsupported = before;
  auto second = import_as(!is_short);
  if (second) return *std::move(second);
  if (second.error().code() != ErrorCode::kUnsupported) throw second.error();
  nodes_.context().unsupported = before;
  throw first.error();
}

SequenceLoop::Results SequenceLoop::import_without_sequences() {
  const auto plain = SequenceRemover(proto_, node_, scope_, axes_).run();
  const auto outputs = import_plain(plain);
  if (!outputs) return std::nullopt;
  axes_ = axes_of_joined(*plain, *outputs);
  if (axes_.empty()) return results_of(*plain, *outputs);
  const auto joined = SequenceRemover(proto_, node_, scope_, axes_).run();
  const auto again = import_plain(joined);
  if (!again) return std::nullopt;
  return results_of(*joined, *again);
}

SequenceLoop::Results SequenceLoop::results_of(const PlainLoop& plain, const Outputs& outputs) {
  std::vector<ScopedValue> results;
  size_t appended = outputs.size(), next = 0;
  for (const auto& sequence : plain.sequences) appended -= static_cast<size_t>(sequence.count);
  auto sequence = plain.sequences.begin();
  for (int k = 0; k < proto_.output_size(); ++k) {
    if (axes_.contains(k)) {
      results.push_back({.state = State::kJoined, .sequence = {outputs[next++]}});
    } else if (sequence == plain.sequences.end() || sequence->place != k) {
      results.push_back({State::kImported, outputs[next++]});
    } else {
      const auto first = outputs.begin() + static_cast<ptrdiff_t>(appended);
      results.push_back(with_appended(start_of(k), {first, first + sequence->count}, k));
      appended += static_cast<size_t>(sequence++->count);
    }
  }
  return results;
}

bool SequenceLoop::is_known_outside(Size size) const {
  const SizeTable& sizes = node_.graph().sizes();
  std::vector<bool> known(sizes.symbols().size());
  for (const Scope* around = &scope_; around; around = around->outer) {
    const auto of_inputs = around->model->graph.symbols_of_inputs();
    for (size_t i = 0; i < known.size(); ++i) known[i] = known[i] || of_inputs[i];
  }
  return is_made_of(sizes, size, known);
}

std::map<int, int64_t> SequenceLoop::axes_of_joined(const PlainLoop& plain,
                                                    const Outputs& outputs) {
  std::map<int, int64_t> axes;
  size_t first = outputs.size();
  for (const auto& sequence : plain.sequences) first -= static_cast<size_t>(sequence.count);
  for (const auto& [place, count] : plain.sequences) {
    const size_t at = first;
    first += static_cast<size_t>(count);
    if (count == 0 || place >= proto_.output_size()) continue;
    const Type stack = node_.graph().value(outputs[at]).type();
    const auto axis = only_concatenated(proto_.output(place), stack.shape.rank() - 1);
    const ScopedValue start = start_of(place);
    if (!axis || start.state != State::kSequence || !start.sequence.empty() ||
        is_known_outside(stack.shape[static_cast<int>(*axis) + 1]))
      continue;
    axes.emplace(place, *axis);
    beginnings_.emplace(place, nothing(stack, *axis, place));
  }
  return axes;
}

// The axis along which every reader of a sequence of tensors of `rank` axes concatenates it.
std::optional<int64_t> SequenceLoop::only_concatenated(const std::string& name, int rank) const {
  if (std::ranges::find(scope_.wanted, name) != scope_.wanted.end()) return std::nullopt;
  std::optional<int64_t> axis;
  for (const NodeProto& reader : *scope_.nodes) {
    const auto outside = names_from_outside(reader);
    if (std::ranges::find(outside, name) != outside.end()) return std::nullopt;
    if (std::ranges::find(reader.input(), name) == reader.input().end()) continue;
    int64_t own = 0;
    if (!is_sequence_operator(reader) || reader.op_type() != "ConcatFromSequence")
      return std::nullopt;
    for (const auto& attribute : reader.attribute()) {
      if (attribute.name() == "axis") own = attribute.i();
      if (attribute.name() == "new_axis" && attribute.i() != 0) return std::nullopt;
    }
    own = node_.resolve_axis(own, rank);
    if (axis && *axis != own) return std::nullopt;
    axis = own;
  }
  return axis;
}

// Tensors of the stack, concatenated, before the first iteration.
ValueId SequenceLoop::nothing(const Type& stack, int64_t axis, int place) {
  std::vector<Size> dims(stack.shape.begin() + 1, stack.shape.end());
  dims[static_cast<size_t>(axis)] = 0;
  if (!std::ranges::all_of(dims, [&](Size size) { return is_known_outside(size); }))
    node_.unsupported("a sequence of tensors that differ in the size of several axes");
  const std::string suffix = fmt::format("sequence{}/nothing", place);
  auto zero = allocate_tensor(stack.dtype, {});
  std::ranges::fill(zero.data, std::byte{0});
  const ValueId number = node_.constant_value(std::move(zero.tensor), suffix + "/zero");
  return node_.layer(Expand{}, {number, node_.sizes_value(dims, suffix + "/dims")}, suffix);
}

std::optional<Outputs> SequenceLoop::import_plain(const std::shared_ptr<PlainLoop>& plain) {
  Scope inner = scope_.body_scope(scope_.prefix);
  for (const std::string& name : names_from_outside(plain->loop)) {
    const ScopedValue* const known = scope_.find(name);
    if (!known || known->state != State::kSequence || known->sequence.empty()) continue;
    const ScopedValue used = scope_.use(name, nodes_.context().unsupported);
    inner.define(name, stack_of(stacked(node_, used, name + "/stack")));
  }
  size_t next = 0;
  std::vector<ValueId> inputs, beginnings;
  for (const auto& [place, value] : beginnings_) beginnings.push_back(value);
  for (const std::string& name : plain->loop.input()) {
    ScopedValue used;
    if (!name.empty()) used = scope_.use(name, nodes_.context().unsupported);
    if (is_sequence(used)) used.value = beginnings.at(next++);
    inputs.push_back(used.value);
  }
  std::vector<std::string> names;
  for (const std::string& name : plain->loop.output())
    names.push_back(name.empty() ? "" : scope_.graph_name(name));
  std::vector<Node::Attribute> attributes;
  for (const auto& attribute : plain->loop.attribute())
    attributes.push_back({attribute.name(), &attribute});
  Node loop(*scope_.model, node_.name(), node_.opset(), std::move(attributes), std::move(inputs),
            std::move(names));
  node_.ignore("body");
  // Constants may lie in the memory of the changed Loop.
  const auto file = std::exchange(scope_.model->file, plain);
  const auto outputs = attempt([&] { return import_loop(plain->loop, loop, inner, nodes_); });
  scope_.model->file = file;
  if (!outputs) throw outputs.error();
  return *outputs;
}

ScopedValue SequenceLoop::with_appended(const ScopedValue& start, std::vector<ValueId> appended,
                                        int place) {
  if (appended.empty()) return start;
  const std::string suffix = fmt::format("sequence{}", place);
  ValueId all = appended[0];
  if (appended.size() > 1) {
    // Those of an iteration beside each other.
    const Shape shape = node_.graph().value(all).type().shape;
    for (const ValueId part : appended) expect_same_type(node_, part, all);
    std::vector<Size> longer(shape.begin(), shape.end()), merged = longer;
    longer.insert(longer.begin() + 1, Size(1));
    for (size_t i = 0; i < appended.size(); ++i)
      appended[i] = reshape(node_, appended[i], longer, fmt::format("{}/appended{}", suffix, i));
    merged[0] = node_.sizes().mul(shape[0], Size(static_cast<int64_t>(appended.size())));
    const ValueId beside = node_.layer(Concat{.axis = 1}, appended, suffix + "/beside");
    all = reshape(node_, beside, merged, suffix + "/appended");
  }
  return stack_of(joined(node_, start, all, suffix));
}

}  // namespace

bool is_loop_of_sequences(const NodeProto& proto, const Scope& scope) {
  if (!is_control_flow(proto) || proto.op_type() != "Loop") return false;
  const auto names_sequence = [&](const std::string& name) {
    const ScopedValue* const known = scope.find(name);
    return known && is_sequence(*known);
  };
  return std::ranges::any_of(proto.input(), names_sequence) ||
         std::ranges::any_of(names_from_outside(proto), names_sequence);
}

std::optional<std::vector<ScopedValue>> import_sequence_loop(const NodeProto& proto, Node& node,
                                                             Scope& scope, NodeImporter& nodes) {
  return SequenceLoop(proto, node, scope, nodes).import();
}

}  // namespace anneal
