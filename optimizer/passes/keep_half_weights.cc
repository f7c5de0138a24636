// keep_half_weights: weights that are numbers of f16 or bf16 are stored in 16 bits.
//
//   y = MatMul(x f32, w f32)   =>   y = MatMul(x f32, w f16)
//
// Where w is a constant matrix that only products of f32 read, and all of its elements are numbers
// of f16, or else of bf16: those of a model in f16, which widen_half made f32, or those that
// assign_precision rounded. A product of few rows takes as long as reading its weights, and one of
// many rows takes as long by either, since a part of the weights becomes f32 for many rows at once.
// Small models stay f32: their weights come from a cache that all cores share.
//
// Exact: kernels multiply by the same f32 numbers. Runs behind all passes that compute weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/passes/passes.h"
#include "anneal/optimizer/precision/half_weights.h"
#include "anneal/optimizer/precision/integer_weights.h"
#include "anneal/optimizer/rewrite.h"

namespace anneal {
namespace {

// A constant of the graph with this type and these elements, as the table of embeddings that the
// last product of a language model multiplies by; else a new one.
ValueId shared_constant(Graph& graph, const Tensor& tensor, const std::string& name) {
  for (const LayerId id : graph.order())
    for (const ValueId input : graph.layer(id).inputs) {
      const Tensor* other = input == ValueId::kNone ? nullptr : graph.constant(input);
      if (other && other->dtype() == tensor.dtype() && *other == tensor) return input;
    }
  return graph.add_constant(name + "/kept", tensor);
}

// Whether the layer is a product of floats by the matrix.
bool multiplies_by_matrix(const Graph& graph, LayerId id, ValueId matrix) {
  const Layer& layer = graph.layer(id);
  return op_as<MatMul>(graph, id) && layer.op_input_count == 2 && layer.inputs[1] == matrix &&
         std::ranges::count(layer.inputs, matrix) == 1;
}

// Empty if all readers of the matrix shall read 16 bits.
std::string why_stays_f32(const Graph& graph, ValueId matrix, double bytes, const PassRun& run) {
  for (const LayerId reader : users_of(graph, matrix))
    if (!multiplies_by_matrix(graph, reader, matrix)) return "another layer reads them";
  // Plans for other numbers of rows shall share the weights, so all count as many rows.
  constexpr int64_t kManyRows = 2;
  return why_cached(kManyRows, bytes, run.options);
}

bool keep_matrix(Graph& graph, ValueId matrix, double bytes, PassRun& run) {
  const Tensor floats = *graph.constant(matrix);
  const std::vector<LayerId> readers = users_of(graph, matrix);
  const auto half = half_of_numbers(floats.as<float>(), run.options.threads);
  if (!half) return false;
  const auto refuse = [&](std::string_view why) {
    run.refused(
        graph.layer(readers.front()).name,
        fmt::format("its weights are numbers of {}, but stay f32: {}", to_string(*half), why));
    return false;
  };
  if (const std::string why = why_stays_f32(graph, matrix, bytes, run); !why.empty())
    return refuse(why);
  const ValueId kept = shared_constant(graph, in_16_bits(floats, *half, run.options.threads),
                                       graph.value(matrix).name);
  const auto by_kept = [&](LayerId reader) {
    NewLayer product = copy_of(graph, reader);
    product.inputs[1] = kept;
    return product;
  };
  for (const LayerId reader : readers)
    if (const std::string why = run.ask_targets(graph, by_kept(reader)); !why.empty())
      return refuse(why);
  for (const LayerId reader : readers) {
    const std::string name = graph.layer(reader).name;
    graph.replace_layer(reader, graph.add(by_kept(reader)));
    run.did(name, fmt::format("reads weights of {}", to_string(*half)),
            {.bytes = floats.count() * 2});
  }
  return true;
}

}  // namespace

bool keep_half_weights(Graph& graph, PassRun& run) {
  const double bytes = weight_bytes_as_floats(graph, run.options);
  bool changed = false;
  for (const LayerId id : graph.order()) {
    if (!run.may_rewrite() || !op_as<MatMul>(graph, id) || graph.layer(id).op_input_count != 2)
      continue;
    const ValueId matrix = graph.layer(id).inputs[1];
    const Tensor* constant = graph.constant(matrix);
    if (constant && constant->dtype() == DataType::kF32 && constant->dims().rank() == 2 &&
        constant->count() > 0 && !graph.is_output(matrix))
      changed |= keep_matrix(graph, matrix, bytes, run);
  }
  return changed;
}

}  // namespace anneal
