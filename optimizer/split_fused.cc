#include "anneal/optimizer/split_fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/new_tensor.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

const std::vector<int64_t>* columns_of_outputs(const Op& op) {
  if (const auto* conv = std::get_if<Conv>(&op)) return &conv->split;
  if (const auto* product = std::get_if<MatMul>(&op)) return &product->split;
  return nullptr;
}

Op one_output(Op op) {
  if (auto* conv = std::get_if<Conv>(&op)) conv->split.clear();
  if (auto* product = std::get_if<MatMul>(&op)) product->split.clear();
  return op;
}

Tensor slice_of(const Tensor& tensor, int axis, int64_t first, int64_t count) {
  Dims dims = tensor.dims();
  const int64_t all = std::exchange(dims[axis], count);
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= dims[i];
  NewTensor part = allocate_tensor(tensor.dtype(), dims);
  if (part.tensor.count() == 0) return part.tensor;
  const size_t run = tensor.bytes().size() / static_cast<size_t>(outer * all);
  std::byte* to = part.data.data();
  for (int64_t i = 0; i < outer; ++i)
    to = std::copy_n(tensor.bytes().data() + static_cast<size_t>(i * all + first) * run,
                     static_cast<size_t>(count) * run, to);
  return part.tensor;
}

size_t extra_inputs(const Program& epilogue) {
  return epilogue.empty() ? 0 : epilogue.inputs().size() - 1;
}

// The epilogue on values of the op's type instead of its accumulators.
Program on_stored(const Program& epilogue, DataType stored) {
  ProgramBuilder builder;
  const std::span<const DataType> types = epilogue.inputs();
  std::vector<Reg> inputs = {builder.cast(builder.input(0, stored), register_type(types[0]))};
  for (size_t i = 1; i < types.size(); ++i)
    inputs.push_back(builder.input(static_cast<int>(i), types[i]));
  const std::vector<Reg> results = builder.inline_program(epilogue, inputs);
  std::vector<std::pair<Reg, DataType>> stores;
  for (size_t i = 0; i < results.size(); ++i)
    stores.emplace_back(results[i], epilogue.results()[i].dtype);
  return builder.finish(stores);
}

class Splitter {
 public:
  Splitter(Graph& graph, LayerId id) : graph_(graph), id_(id) {}

  // A layer for each output. False if the layer has one, or weights that are not constant.
  bool split_outputs() {
    const Layer layer = graph_.layer(id_);
    const std::vector<int64_t>* const columns = columns_of_outputs(layer.op);
    if (columns == nullptr || columns->empty()) return false;
    const Tensor* const weights = graph_.constant(layer.inputs[1]);
    if (weights == nullptr) return false;
    const int axis = channel_axis(layer.op, *weights);
    auto extra = layer.inputs.begin() + layer.op_input_count;
    auto output = layer.outputs.begin();
    int64_t first = 0;
    for (size_t i = 0; i < columns->size(); ++i) {
      NewLayer part{.name = fmt::format("{}/part{}", layer.name, i),
                    .op = one_output(layer.op),
                    .inputs = {layer.inputs.begin(), layer.inputs.begin() + layer.op_input_count},
                    .op_input_count = layer.op_input_count,
                    .origins = layer.origins};
      part.inputs[1] =
          graph_.add_constant(fmt::format("{}.part{}", graph_.value(layer.inputs[1]).name, i),
                              slice_of(*weights, axis, first, (*columns)[i]));
      first += (*columns)[i];
      const Program epilogue = layer.epilogues.empty() ? Program() : layer.epilogues[i];
      const auto end = extra + static_cast<ptrdiff_t>(extra_inputs(epilogue));
      part.inputs.insert(part.inputs.end(), extra, end);
      extra = end;
      const size_t results = epilogue.empty() ? 1 : epilogue.results().size();
      for (size_t k = 0; k < results; ++k)
        part.output_types.push_back(graph_.value(output[static_cast<ptrdiff_t>(k)]).type());
      if (!epilogue.empty()) part.epilogues = {epilogue};
      output = take(graph_.add(std::move(part)), output);
    }
    return true;
  }

  // The op alone, and its epilogue as a Pointwise. False if there is no such epilogue.
  bool split_epilogue() {
    const Layer layer = graph_.layer(id_);
    if (!std::holds_alternative<Conv>(layer.op) && !std::holds_alternative<MatMul>(layer.op))
      return false;
    if (layer.epilogues.size() != 1 || layer.epilogues[0].empty()) return false;
    NewLayer alone{.name = layer.name + "/product",
                   .op = layer.op,
                   .inputs = {layer.inputs.begin(), layer.inputs.begin() + layer.op_input_count},
                   .op_input_count = layer.op_input_count,
                   .origins = layer.origins};
    const LayerId product = graph_.add(std::move(alone));
    const ValueId stored = graph_.layer(product).outputs[0];
    parts_.push_back(graph_.layer(product).name);
    NewLayer rest{.name = layer.name + "/epilogue",
                  .op = Pointwise{on_stored(layer.epilogues[0], graph_.value(stored).type().dtype)},
                  .inputs = {stored},
                  .origins = layer.origins};
    rest.inputs.insert(rest.inputs.end(), layer.inputs.begin() + layer.op_input_count,
                       layer.inputs.end());
    for (const ValueId output : layer.outputs)
      rest.output_types.push_back(graph_.value(output).type());
    take(graph_.add(std::move(rest)), layer.outputs.begin());
    return true;
  }

  // One part has the layer's name: the first of several products, or the epilogue.
  SplitLayer finish(const std::string& name, bool is_first) {
    graph_.swap_names(id_, is_first ? first_ : last_);
    (is_first ? parts_.front() : parts_.back()) = name;
    return {name, std::move(parts_)};
  }

 private:
  // The outputs of the new layer take the place of as many of the old one's.
  std::vector<ValueId>::const_iterator take(LayerId by, std::vector<ValueId>::const_iterator old) {
    for (const ValueId output : std::vector<ValueId>(graph_.layer(by).outputs)) {
      graph_.replace_uses(*old, output);
      graph_.swap_names(*old++, output);
    }
    parts_.push_back(graph_.layer(by).name);
    if (first_ == LayerId::kNone) first_ = by;
    last_ = by;
    return old;
  }

  Graph& graph_;
  const LayerId id_;
  LayerId first_ = LayerId::kNone, last_ = LayerId::kNone;
  std::vector<std::string> parts_;
};

}  // namespace

int channel_axis(const Op& op, const Tensor& weights) {
  const auto* product = std::get_if<MatMul>(&op);
  if (!product) return 0;
  return weights.dims().rank() - (product->transpose_b ? 2 : 1);
}

std::vector<SplitLayer> split_fused(Graph& graph,
                                    const std::function<bool(const std::string& layer)>& wants) {
  std::vector<SplitLayer> split;
  for (const LayerId id : graph.order()) {
    const std::string name = graph.layer(id).name;
    if (finds_sizes(graph, id) || !wants(name)) continue;
    Splitter splitter(graph, id);
    const bool is_merged = splitter.split_outputs();
    if (is_merged || splitter.split_epilogue()) split.push_back(splitter.finish(name, is_merged));
  }
  if (!split.empty()) graph.erase_unused();
  return split;
}

}  // namespace anneal
