// merge_siblings: convolutions, or products with constants, that read one input become one layer.
//
//   a = Conv(x, w1; b1) epilogue=p; c = Conv(x, w2; b2) epilogue=q
//     =>   a, c = Conv(x, concat(w1, w2); b1, b2) split=[K1,K2] epilogues=p, q
//
// Each output keeps its channels (MatMul: its columns), its epilogue and its place in memory; the
// input is read once, and one kernel is launched. Sums are added up in the same order, so results
// do not change.
//
// For layers that are equal in all fields, have one group and constant weights that differ only in
// the number of channels, and do not depend on each other. Kernels of different sizes stay apart: a
// 1x1 beside a 3x3 would become a 3x3 with zeros, nine times its arithmetic, and would no longer be
// exact, since a zero times an infinity is NaN. Not where the targets' kernels refuse.
//
// Rows of a product's weights that would not begin at whole vectors for each sibling are written as
// columns: kernels that read several weights at once then read along the depth, as before.
//
// Runs after fuse_epilogue: biases and activations differ from sibling to sibling, and are
// epilogues by then, one for each output; before it, each would have to find the place of its
// output.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "anneal/core/file.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/split_fused.h"

namespace anneal {
namespace {

constexpr int64_t kVectorBytes = 16;
// From this size on, merging is shared among threads, and the parts are erased at once.
constexpr size_t kLargeWeightBytes = size_t{1} << 20;

int64_t channels(const Op& op, const Tensor& weights) {
  return weights.dims()[channel_axis(op, weights)];
}

bool is_whole(const Op& op) {
  if (const auto* conv = std::get_if<Conv>(&op)) return conv->split.empty() && conv->groups == 1;
  const auto* product = std::get_if<MatMul>(&op);
  return product != nullptr && product->split.empty();
}

// Zero points of the weights: one number serves all siblings alike.
bool has_zero_per_channel(const Graph& graph, const Layer& layer) {
  if (layer.op_input_count < 4 || layer.inputs[3] == ValueId::kNone) return false;
  const Shape& shape = graph.value(layer.inputs[3]).type().shape;
  return shape.rank() > 0 && !(shape[0] == Size(1));
}

std::string text_of(const Dims& dims, int first) {
  std::string text;
  for (int axis = first; axis < dims.rank(); ++axis)
    text += fmt::format("{}{}", text.empty() ? "" : "x", dims[axis]);
  return text;
}

// Why two layers with the same input and kind of op cannot be merged, as a record of the second;
// empty if they can.
std::string why_apart(const Graph& graph, const Layer& a, const Layer& b) {
  const Tensor &w = *graph.constant(a.inputs[1]), &v = *graph.constant(b.inputs[1]);
  if (w.dtype() != v.dtype()) return "weights of another type";
  if (w.dims().rank() != v.dims().rank()) return "weights of another rank";
  const bool is_conv = std::holds_alternative<Conv>(a.op);
  if (is_conv) {
    double more = 1;
    bool same = true;
    for (int axis = 2; axis < w.dims().rank(); ++axis) {
      same = same && w.dims()[axis] == v.dims()[axis];
      more *= static_cast<double>(w.dims()[axis]) / static_cast<double>(v.dims()[axis]);
    }
    if (!same)
      return fmt::format(
          "its kernel is {} and theirs {}: padding the smaller one would cost {:.3g} times its "
          "arithmetic",
          text_of(v.dims(), 2), text_of(w.dims(), 2), std::max(more, 1 / more));
  }
  // Whether rows may be rounded matters only to weights with scales.
  const auto form = [](Op op) {
    if (auto* product = std::get_if<MatMul>(&op)) product->may_round_a = false;
    return op;
  };
  if (form(a.op) != form(b.op))
    return is_conv ? "other strides, pads or dilations" : "its weights are transposed, or theirs";
  for (int axis = 0; axis < w.dims().rank(); ++axis)
    if (axis != channel_axis(a.op, w) && w.dims()[axis] != v.dims()[axis])
      return "another batch of weights";
  const auto zero = [](const Layer& layer, int i) {
    return i < layer.op_input_count ? layer.inputs[static_cast<size_t>(i)] : ValueId::kNone;
  };
  if (zero(a, 4) != ValueId::kNone || zero(b, 4) != ValueId::kNone)
    return "weights with scales of their own";
  if (zero(a, 2) != zero(b, 2) || zero(a, 3) != zero(b, 3)) return "other zero points";
  return {};
}

bool needs(const Graph& graph, LayerId layer, LayerId other) {
  const auto& inputs = graph.layer(layer).inputs;
  return depends_otherwise(graph, layer, other) ||
         std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
           return input != ValueId::kNone && producer(graph, input) == other;
         });
}

// Concatenates tensors that differ only in the size of this axis. threads: 0: one per core.
Tensor concatenated(const std::vector<const Tensor*>& parts, int axis, int threads) {
  Dims dims = parts[0]->dims();
  dims[axis] = 0;
  for (const Tensor* part : parts) dims[axis] += part->dims()[axis];
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= dims[i];
  NewTensor all = allocate_tensor(parts[0]->dtype(), dims);
  const auto rows = static_cast<size_t>(outer);
  const auto copy = [&](int64_t begin, int64_t end) {
    std::byte* to = all.data.data() + all.data.size() / rows * static_cast<size_t>(begin);
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
      for (const Tensor* part : parts) {
        const size_t run = part->bytes().size() / rows;
        to = std::copy_n(part->bytes().data() + row * run, run, to);
      }
  };
  if (all.data.size() < kLargeWeightBytes)
    copy(0, outer);
  else
    ThreadTeam(threads > 0 ? threads : hardware_threads()).for_ranges(outer, 1, copy);
  return all.tensor;
}

// With the last two axes swapped.
Tensor transposed(const Tensor& tensor) {
  Dims dims = tensor.dims();
  const int last = dims.rank() - 1;
  const int64_t rows = dims[last - 1], columns = dims[last];
  std::swap(dims[last - 1], dims[last]);
  const size_t size = size_of(tensor.dtype());
  NewTensor fresh = allocate_tensor(tensor.dtype(), dims);
  std::byte* to = fresh.data.data();
  for (size_t matrix = 0; matrix < tensor.bytes().size();
       matrix += static_cast<size_t>(rows * columns) * size)
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t row = 0; row < rows; ++row)
        to = std::copy_n(
            tensor.bytes().data() + matrix + static_cast<size_t>(row * columns + column) * size,
            size, to);
  return fresh.tensor;
}

class Merger {
 public:
  Merger(Graph& graph, PassRun& run) : graph_(graph), run_(run) {}

  bool merge_all() {
    bool any = false;
    for (const LayerId id : graph_.order()) {
      if (!run_.may_rewrite()) break;
      // Merged ones are unused or erased.
      if (!merged_.contains(id) && is_candidate(id)) any |= merge(siblings_of(id));
    }
    return any;
  }

 private:
  bool is_used(const Layer& layer) const {
    return std::any_of(layer.outputs.begin(), layer.outputs.end(), [&](ValueId output) {
      return !graph_.value(output).users.empty() || graph_.is_output(output);
    });
  }

  bool is_candidate(LayerId id) const {
    const Layer& layer = graph_.layer(id);
    if (!is_whole(layer.op) || !is_used(layer)) return false;
    const Tensor* weights = graph_.constant(layer.inputs[1]);
    return weights != nullptr && weights->count() > 0;
  }

  // Layers that may be one with the first, itself included, in the order in which they were added.
  std::vector<LayerId> siblings_of(LayerId first) {
    const Layer& one = graph_.layer(first);
    std::vector<LayerId> users = users_of(graph_, one.inputs[0]);
    std::sort(users.begin(), users.end());
    std::vector<LayerId> siblings = {first};
    for (const LayerId other : users) {
      const Layer& layer = graph_.layer(other);
      if (other == first || merged_.contains(other) || layer.op.index() != one.op.index() ||
          layer.inputs[0] != one.inputs[0])
        continue;
      const std::string why = why_not(siblings, other);
      if (why.empty()) {
        siblings.push_back(other);
      } else if (is_used(layer) &&
                 told_.insert({std::min(first, other), std::max(first, other)}).second) {
        run_.refused(layer.name, fmt::format("not merged with \"{}\": {}", one.name, why));
      }
    }
    return siblings;
  }

  std::string why_not(const std::vector<LayerId>& siblings, LayerId id) const {
    const Layer& layer = graph_.layer(id);
    if (const auto* conv = std::get_if<Conv>(&layer.op); conv && conv->groups != 1)
      return fmt::format("it has {} groups", conv->groups);
    if (!is_whole(layer.op)) return "its outputs are those of several layers already";
    if (!is_candidate(id)) return "its weights are not constant";
    const Layer& one = graph_.layer(siblings[0]);
    std::string why = why_apart(graph_, one, layer);
    if (!why.empty()) return why;
    if (has_zero_per_channel(graph_, layer)) return "a zero point for each channel";
    for (const LayerId sibling : siblings)
      if (needs(graph_, id, sibling) || needs(graph_, sibling, id))
        return "one needs what the other computes";
    return {};
  }

  // The siblings' weights side by side, for an op that may change with them. Layers that share
  // weights share them again.
  ValueId weights_of(const std::vector<LayerId>& siblings, Op& op) {
    std::vector<ValueId> values;
    std::vector<const Tensor*> tensors;
    bool are_vectors = true;
    for (const LayerId id : siblings) {
      values.push_back(graph_.layer(id).inputs[1]);
      tensors.push_back(graph_.constant(values.back()));
      const auto size = static_cast<int64_t>(size_of(tensors.back()->dtype()));
      are_vectors = are_vectors && channels(op, *tensors.back()) * size % kVectorBytes == 0;
    }
    const int axis = channel_axis(op, *tensors[0]);
    auto* product = std::get_if<MatMul>(&op);
    const bool transposes = product && !product->transpose_b && !are_vectors;
    if (transposes) product->transpose_b = true;
    const std::tuple key(axis, transposes, values);
    // Those of a layer that the targets refused may be erased.
    if (const auto found = weights_.find(key);
        found != weights_.end() && graph_.constant(found->second) != nullptr)
      return found->second;
    const Tensor all = concatenated(tensors, axis, run_.options.threads);
    // Large builds hold one form of the weights at a time.
    for (const Tensor* tensor : tensors) give_pages_back(*tensor);
    const ValueId value = graph_.add_constant(graph_.value(values[0]).name + ".merged",
                                              transposes ? transposed(all) : all);
    weights_[key] = value;
    return value;
  }

  NewLayer merged_layer(const std::vector<LayerId>& siblings) {
    const Layer& first = graph_.layer(siblings[0]);
    NewLayer merged{.name = first.name,
                    .op = first.op,
                    .inputs = {first.inputs.begin(), first.inputs.begin() + first.op_input_count},
                    .op_input_count = first.op_input_count};
    merged.inputs[1] = weights_of(siblings, merged.op);
    std::vector<int64_t> split;
    bool has_epilogues = false;
    for (const LayerId id : siblings) {
      const Layer& layer = graph_.layer(id);
      split.push_back(channels(layer.op, *graph_.constant(layer.inputs[1])));
      merged.inputs.insert(merged.inputs.end(), layer.inputs.begin() + layer.op_input_count,
                           layer.inputs.end());
      merged.epilogues.push_back(layer.epilogues.empty() ? Program() : layer.epilogues[0]);
      has_epilogues = has_epilogues || !merged.epilogues.back().empty();
      merged.origins.insert(merged.origins.end(), layer.origins.begin(), layer.origins.end());
      for (const ValueId output : layer.outputs)
        merged.output_types.push_back(graph_.value(output).type());
    }
    if (!has_epilogues) merged.epilogues.clear();
    if (auto* conv = std::get_if<Conv>(&merged.op)) {
      conv->split = std::move(split);
    } else {
      std::get<MatMul>(merged.op).split = std::move(split);
    }
    return merged;
  }

  bool merge(const std::vector<LayerId>& siblings) {
    if (siblings.size() < 2) return false;
    const std::string name = graph_.layer(siblings[0]).name;
    NewLayer merged = merged_layer(siblings);
    std::string with;
    for (size_t i = 1; i < siblings.size(); ++i)
      with += fmt::format("{}\"{}\"", with.empty() ? "" : ", ", graph_.layer(siblings[i]).name);
    if (const std::string why = run_.ask_targets(graph_, merged); !why.empty()) {
      run_.refused(name, fmt::format("not merged with {}: {}", with, why));
      merged_.insert(siblings.begin(), siblings.end());  // asked once
      return false;
    }
    const auto count = static_cast<int64_t>(siblings.size());
    const int64_t input_bytes = saving_of(graph_, merged.inputs[0]).bytes / 2;
    const LayerId into = graph_.add(std::move(merged));
    size_t next = 0;
    for (const LayerId id : siblings) {
      for (const ValueId output : graph_.layer(id).outputs) {
        const ValueId taken = graph_.layer(into).outputs[next++];
        graph_.replace_uses(output, taken);
        graph_.swap_names(output, taken);
      }
      merged_.insert(id);
    }
    graph_.swap_names(siblings[0], into);
    merged_.insert(into);
    // The next merged weights get the memory of these.
    if (graph_.constant(graph_.layer(into).inputs[1])->bytes().size() >= kLargeWeightBytes)
      graph_.erase_unused();
    run_.did(name, fmt::format("merged with {}", with), {count - 1, (count - 1) * input_bytes});
    return true;
  }

  Graph& graph_;
  PassRun& run_;
  std::set<LayerId> merged_;  // or made, or refused by the targets
  std::set<std::pair<LayerId, LayerId>> told_;
  // By axis, whether they are transposed, and their sources.
  std::map<std::tuple<int, bool, std::vector<ValueId>>, ValueId> weights_;
};

}  // namespace

bool merge_siblings(Graph& graph, PassRun& run) { return Merger(graph, run).merge_all(); }

}  // namespace anneal
