#include "anneal/optimizer/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace anneal {

bool finds_sizes(const Graph& graph, LayerId id) {
  return std::ranges::any_of(graph.infer_outputs(id), [](const Fact& fact) {
    return std::ranges::any_of(fact.type.shape, &Size::is_unknown);
  });
}

NewLayer copy_of(const Graph& graph, LayerId id) {
  const Layer& layer = graph.layer(id);
  NewLayer copy{.name = layer.name,
                .op = layer.op,
                .inputs = layer.inputs,
                .epilogues = layer.epilogues,
                .op_input_count = layer.op_input_count,
                .origins = layer.origins};
  for (const ValueId output : layer.outputs)
    copy.output_types.push_back(graph.value(output).type());
  return copy;
}

Rewrite::Rewrite(Graph& graph, LayerId id, const std::vector<std::string>& origins)
    : graph_(graph), id_(id), origins_(origins.empty() ? graph.layer(id).origins : origins) {}

ValueId Rewrite::add(std::string_view stem, Op op, std::vector<ValueId> inputs) {
  const LayerId added = graph_.add({.name = fmt::format("{}/{}", graph_.layer(id_).name, stem),
                                    .op = std::move(op),
                                    .inputs = std::move(inputs),
                                    .origins = origins_});
  return graph_.layer(added).outputs[0];
}

ValueId Rewrite::list(std::string_view stem, int argument, const std::vector<int64_t>& values) {
  const Dims dims = {static_cast<int64_t>(values.size())};
  return graph_.add_constant(fmt::format("{}/{}.in{}", graph_.layer(id_).name, stem, argument),
                             Tensor::of<int64_t>(DataType::kI64, dims, values));
}

ValueId Rewrite::slice(ValueId x, const std::vector<int64_t>& starts,
                       const std::vector<int64_t>& ends, const std::vector<int64_t>& axes,
                       const std::vector<int64_t>& steps) {
  const std::string stem = fmt::format("slice{}", ++slices_);
  return add(
      stem, Slice{},
      {x, list(stem, 1, starts), list(stem, 2, ends), list(stem, 3, axes), list(stem, 4, steps)});
}

ValueId Rewrite::slice(ValueId x, int64_t axis, int64_t start, int64_t end) {
  return slice(x, {start}, {end}, {axis}, {1});
}

ValueId Rewrite::reshape(ValueId x, const Shape& to) {
  std::vector<int64_t> sizes;
  for (const Size size : to) sizes.push_back(size.known() ? size.value() : -1);
  const auto unknown = std::count(sizes.begin(), sizes.end(), -1);
  const bool nothing = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  if (unknown == 0 || (unknown == 1 && !nothing))
    return add("reshape", Reshape{true}, {x, list("reshape", 1, sizes)});
  const auto decided = graph_.symbols_of_inputs();
  for (const Size size : to)
    if (size.is_unknown() || !is_made_of(graph_.sizes(), size, decided)) return ValueId::kNone;
  const std::vector<Size> elements(to.begin(), to.end());
  const ValueId shape = add("reshape/shape", SizeTensor{elements, false}, {});
  return add("reshape", Reshape{true}, {x, shape});
}

ValueId Rewrite::transpose(ValueId x, const std::vector<int64_t>& permutation) {
  return add("transpose", Transpose{permutation}, {x});
}

ValueId Rewrite::concat(std::vector<ValueId> parts, int64_t axis) {
  return add("concat", Concat{axis}, std::move(parts));
}

bool Rewrite::finish(ValueId result) {
  const ValueId output = graph_.layer(id_).outputs[0];
  if (result == ValueId::kNone || graph_.value(result).type() != graph_.value(output).type())
    return false;
  const LayerId producer = graph_.value(result).producer;
  if (producer == LayerId::kNone && graph_.is_output(output)) return false;
  if (graph_.value(result).users.empty() && !graph_.is_output(result))
    graph_.replace_layer(id_, producer);
  else
    graph_.replace_uses(output, result);
  return true;
}

}  // namespace anneal
