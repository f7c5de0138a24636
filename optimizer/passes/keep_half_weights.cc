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
#include "anneal/optimizer/precision/kept_halves.h"
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
  if (const std::string why = why_targets_refuse(graph, readers, kept, run); !why.empty())
    return refuse(why);
  for (const LayerId reader : readers) {
    const std::string name = graph.layer(reader).name;
    graph.replace_layer(reader, graph.add(by_halves(graph, reader, kept)));
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
    if (run.may_rewrite() && multiplies_by_floats(graph, id))
      changed |= keep_matrix(graph, graph.layer(id).inputs[1], bytes, run);
  }
  return changed;
}

}  // namespace anneal
