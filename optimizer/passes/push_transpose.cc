// push_transpose: transposes move after layers that can work on the untransposed input, until they
// cancel.
//
//   y = Transpose(Relu(Transpose(x)))                    =>   y = Relu(x)
//   z = Add(Transpose(x), Transpose(y))                  =>   z = Transpose(Add(x, y))
//   y = Reduce(Transpose(x), axes) keepdims=false        =>   y = Reduce(x, other axes)
//
// Through Pointwise (constants are transposed the other way at build time), Concat, Softmax,
// Normalize, Pad, Slice, Quantize, Dequantize and Reduce, if all their transposed inputs have the
// same permutation and no other reader. A transpose moves by one layer if two transposes become
// one, if the result is smaller, or if it comes nearer to another transpose. Transposes that meet
// are merged or cancel, so their number never grows. Models of channels-last frameworks have one
// before and one after each convolution.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "anneal/core/new_tensor.h"
#include "anneal/graph/op/op_traits.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

using Permutation = std::vector<int64_t>;
constexpr int kFarthestTranspose = 32;  // layers to look ahead

const Permutation* permutation_of(const Graph& graph, ValueId value) {
  if (value == ValueId::kNone) return nullptr;
  const LayerId id = producer(graph, value);
  const auto* op = op_as<Transpose>(graph, id);
  return op && graph.layer(id).epilogues.empty() ? &op->permutation : nullptr;
}

std::optional<std::vector<int64_t>> known_axes(const Graph& graph, ValueId value, int64_t rank) {
  const auto& elements = graph.value(value).fact.elements;
  if (!elements) return std::nullopt;
  std::vector<int64_t> axes;
  for (const Size element : *elements) {
    if (!element.known()) return std::nullopt;
    axes.push_back(element.value() < 0 ? element.value() + rank : element.value());
  }
  return axes;
}

// A layer that reads what is not transposed.
struct PushedLayer {
  Op op;
  std::vector<bool> transposed;                  // of its inputs: those read from before
  std::vector<std::vector<int64_t>> lists = {};  // contents of inputs 1, 2, ... if they change
  Permutation behind;                            // of its output
};

Permutation without(const Permutation& permutation, const std::vector<int64_t>& axes) {
  // Axes are those of the transposed tensor.
  std::vector<int64_t> kept;
  for (size_t i = 0; i < permutation.size(); ++i)
    if (std::ranges::find(axes, static_cast<int64_t>(i)) == axes.end())
      kept.push_back(permutation[i]);
  Permutation ranks;
  for (const int64_t axis : kept)
    ranks.push_back(std::ranges::count_if(kept, [&](int64_t other) { return other < axis; }));
  return ranks;
}

// The layer with `permutation` after it instead of before it; nullopt if its op does not allow
// that. assumed: an input that is taken to be so transposed, or kNone.
class Pusher {
 public:
  Pusher(const Graph& graph, LayerId id, const Permutation& permutation, ValueId assumed)
      : graph_(graph), layer_(graph.layer(id)), id_(id), p_(permutation), assumed_(assumed) {}

  std::optional<PushedLayer> push() const {
    if (!layer_.epilogues.empty() || layer_.outputs.size() != 1) return std::nullopt;
    PushedLayer pushed{layer_.op, std::vector<bool>(layer_.inputs.size()), {}, p_};
    for (size_t i = 0; i < layer_.inputs.size(); ++i) pushed.transposed[i] = is_transposed(i);
    return std::visit([&](const auto& op) { return through(op, std::move(pushed)); }, layer_.op);
  }

 private:
  bool is_transposed(size_t i) const {
    const ValueId input = layer_.inputs[i];
    if (input == assumed_ && input != ValueId::kNone) return true;
    const Permutation* own = permutation_of(graph_, input);
    return own && *own == p_ && sole_user(graph_, input) == id_;
  }
  int64_t before(int64_t axis) const { return p_[static_cast<size_t>(axis)]; }

  template <class T>
  requires(std::is_same_v<T, std::monostate> ||
           *op_traits<T>.transpose ==
               TransposeRule::kStays) std::optional<PushedLayer> through(const T&,
                                                                         const PushedLayer&)
  const { return std::nullopt; }

  std::optional<PushedLayer> through(const Pointwise& op, PushedLayer pushed) const {
    const int rank = graph_.value(layer_.outputs[0]).type().shape.rank();
    if (op.program.uses_index() || rank != static_cast<int>(p_.size())) return std::nullopt;
    for (size_t i = 0; i < layer_.inputs.size(); ++i)
      if (!pushed.transposed[i] && !graph_.constant(layer_.inputs[i])) return std::nullopt;
    return pushed;
  }
  std::optional<PushedLayer> through(const Concat& op, PushedLayer pushed) const {
    if (std::ranges::find(pushed.transposed, false) != pushed.transposed.end()) return std::nullopt;
    pushed.op = Concat{before(op.axis)};
    return pushed;
  }
  std::optional<PushedLayer> through(const Softmax& op, PushedLayer pushed) const {
    if (!op.map.empty()) return std::nullopt;
    pushed.op = Softmax{.axis = before(op.axis), .log = op.log};
    return pushed;
  }
  std::optional<PushedLayer> through(const Normalize& op, PushedLayer pushed) const {
    Normalize moved = op;
    for (int64_t& axis : moved.axes) axis = before(axis);
    std::ranges::sort(moved.axes);
    pushed.op = moved;
    return pushed;
  }
  std::optional<PushedLayer> through(const Pad&, PushedLayer pushed) const {
    const auto pads = known_axes(graph_, layer_.inputs[1], 0);
    const size_t rank = p_.size();
    if (!pushed.transposed[0] || !pads || pads->size() != 2 * rank) return std::nullopt;
    std::vector<int64_t> moved(2 * rank);
    for (size_t i = 0; i < rank; ++i) {
      const auto to = static_cast<size_t>(p_[i]);
      moved[to] = (*pads)[i];
      moved[rank + to] = (*pads)[rank + i];
    }
    pushed.lists = {moved};
    return pushed;
  }
  std::optional<PushedLayer> through(const Slice&, PushedLayer pushed) const {
    auto axes = known_axes(graph_, layer_.inputs[3], std::ssize(p_));
    if (!pushed.transposed[0] || !axes) return std::nullopt;
    for (int64_t& axis : *axes) axis = before(axis);
    pushed.lists = {{}, {}, *axes};
    return pushed;
  }
  std::optional<PushedLayer> through(const Reduce& op, PushedLayer pushed) const {
    auto axes = known_axes(graph_, layer_.inputs[1], std::ssize(p_));
    if (!op.map.empty() || !pushed.transposed[0] || !axes || axes->empty()) return std::nullopt;
    if (!op.keepdims) pushed.behind = without(p_, *axes);
    for (int64_t& axis : *axes) axis = before(axis);
    std::ranges::sort(*axes);
    pushed.lists = {*axes};
    return pushed;
  }
  std::optional<PushedLayer> through(const Quantize& op, PushedLayer pushed) const {
    return scaled(op, std::move(pushed));
  }
  std::optional<PushedLayer> through(const Dequantize& op, PushedLayer pushed) const {
    return scaled(op, std::move(pushed));
  }
  template <class T>
  std::optional<PushedLayer> scaled(const T& op, PushedLayer pushed) const {
    if (!pushed.transposed[0] || op.block_size != 0) return std::nullopt;
    T moved = op;
    if (graph_.value(layer_.inputs[1]).type().shape.rank() > 0) moved.axis = before(op.axis);
    pushed.op = moved;
    return pushed;
  }

  const Graph& graph_;
  const Layer& layer_;
  LayerId id_;
  const Permutation& p_;
  ValueId assumed_;
};

bool moves_nothing(const Permutation& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end());
}

int64_t inputs_transposed(const Graph& graph, LayerId id, const PushedLayer& pushed) {
  std::vector<ValueId> values;
  for (size_t i = 0; i < pushed.transposed.size(); ++i) {
    const ValueId value = graph.layer(id).inputs[i];
    if (pushed.transposed[i] && std::ranges::find(values, value) == values.end())
      values.push_back(value);
  }
  return std::ssize(values);
}

// Whether a transpose behind the layer is better than those before it.
bool transpose_pays(const Graph& graph, LayerId id, const PushedLayer& pushed, int depth) {
  if (moves_nothing(pushed.behind) || inputs_transposed(graph, id, pushed) > 1) return true;
  const ValueId output = graph.layer(id).outputs[0];
  if (op_as<Reduce>(graph, id) &&
      element_count(graph, output) < element_count(graph, graph.layer(id).inputs[0]))
    return true;
  const std::vector<LayerId> users = users_of(graph, output);
  if (std::ranges::any_of(users, [&](LayerId user) { return op_as<Transpose>(graph, user); }))
    return true;
  if (depth == 0 || users.size() != 1 || graph.is_output(output)) return false;
  const auto next = Pusher(graph, users[0], pushed.behind, output).push();
  return next && transpose_pays(graph, users[0], *next, depth - 1);
}

// For a constant that broadcasts to the permutation's rank: the constant that the permutation maps
// to it.
Tensor transposed_back(const Tensor& tensor, const Permutation& permutation) {
  const auto rank = static_cast<int>(permutation.size());
  Dims padded = Dims::filled(rank - tensor.dims().rank(), 1);
  for (const int64_t size : tensor.dims()) padded.push_back(size);
  Dims dims = padded, strides = padded;
  int64_t stride = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= padded[axis];
  }
  Dims steps = strides;
  for (int axis = 0; axis < rank; ++axis) {
    const auto to = static_cast<int>(permutation[static_cast<size_t>(axis)]);
    dims[to] = padded[axis];
    steps[to] = strides[axis];
  }
  auto fresh = allocate_tensor(tensor.dtype(), dims);
  const size_t size = size_of(tensor.dtype());
  Dims at = Dims::filled(rank, 0);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    int64_t from = 0;
    for (int axis = 0; axis < rank; ++axis) from += at[axis] * steps[axis];
    std::memcpy(fresh.data.data() + static_cast<size_t>(i) * size,
                tensor.bytes().data() + static_cast<size_t>(from) * size, size);
    for (int axis = rank - 1; axis >= 0 && ++at[axis] == dims[axis]; --axis) at[axis] = 0;
  }
  return fresh.tensor;
}

bool push_transpose_at(Graph& graph, LayerId id, PassRun& run) {
  const std::vector<ValueId> inputs = graph.layer(id).inputs;
  const auto first = std::ranges::find_if(
      inputs, [&](ValueId input) { return permutation_of(graph, input) != nullptr; });
  if (first == inputs.end() || op_as<Transpose>(graph, id)) return false;
  const Permutation permutation = *permutation_of(graph, *first);
  const auto pushed = Pusher(graph, id, permutation, ValueId::kNone).push();
  if (!pushed || inputs_transposed(graph, id, *pushed) == 0 ||
      !transpose_pays(graph, id, *pushed, kFarthestTranspose))
    return false;

  const std::string name = graph.layer(id).name;
  Rewrite rewrite(graph, id);
  std::vector<ValueId> given = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (pushed->transposed[i]) {
      given[i] = graph.layer(producer(graph, inputs[i])).inputs[0];
    } else if (op_as<Pointwise>(graph, id) && graph.value(inputs[i]).type().shape.rank() > 0) {
      given[i] = graph.add_constant(graph.value(inputs[i]).name,
                                    transposed_back(*graph.constant(inputs[i]), permutation));
    } else if (i > 0 && i <= pushed->lists.size() && !pushed->lists[i - 1].empty()) {
      given[i] = rewrite.list("moved", static_cast<int>(i), pushed->lists[i - 1]);
    }
  }
  const bool vanishes = moves_nothing(pushed->behind);
  const int64_t before = inputs_transposed(graph, id, *pushed);
  const Saving saved = {before - !vanishes, 0};
  ValueId result = rewrite.add("moved", pushed->op, given);
  if (!vanishes) result = rewrite.transpose(result, pushed->behind);
  if (!rewrite.finish(result)) return false;
  run.did(
      name,
      vanishes ? "its input need not be transposed" : "is transposed after it instead of before it",
      saved);
  return true;
}

// Two that met.
bool cancel_transposes(Graph& graph, LayerId id, PassRun& run) {
  const Permutation* second = op_as<Transpose>(graph, id) && graph.layer(id).epilogues.empty()
                                  ? &op_as<Transpose>(graph, id)->permutation
                                  : nullptr;
  const ValueId between =
      graph.layer(id).inputs.empty() ? ValueId::kNone : graph.layer(id).inputs[0];
  const Permutation* first = second ? permutation_of(graph, between) : nullptr;
  if (!first) return false;
  Permutation both;
  for (const int64_t axis : *second) both.push_back((*first)[static_cast<size_t>(axis)]);
  if (!moves_nothing(both) && sole_user(graph, between) != id) return false;
  const std::string name = graph.layer(id).name;
  const ValueId x = graph.layer(producer(graph, between)).inputs[0];
  const Saving saved = saving_of(graph, between);
  Rewrite rewrite(graph, id);
  if (!rewrite.finish(moves_nothing(both) ? x : rewrite.transpose(x, both))) return false;
  run.did(name, "meets another transpose", saved);
  return true;
}

bool rewrite(Graph& graph, LayerId id, PassRun& run) {
  return cancel_transposes(graph, id, run) || push_transpose_at(graph, id, run);
}

}  // namespace

bool push_transpose(Graph& graph, PassRun& run) { return sweep(graph, run, rewrite); }

}  // namespace anneal
