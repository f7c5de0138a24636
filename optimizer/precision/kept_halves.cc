#include "anneal/optimizer/precision/kept_halves.h"

#include <algorithm>

#include "anneal/optimizer/analysis/query.h"
#include "anneal/optimizer/precision/integer_weights.h"

namespace anneal {
namespace {

bool multiplies_by(const Graph& graph, LayerId id, ValueId matrix) {
  const Layer& layer = graph.layer(id);
  return op_as<MatMul>(graph, id) && layer.op_input_count == 2 && layer.inputs[1] == matrix &&
         std::ranges::count(layer.inputs, matrix) == 1;
}

}  // namespace

bool multiplies_by_floats(const Graph& graph, LayerId id) {
  if (!op_as<MatMul>(graph, id) || graph.layer(id).op_input_count != 2) return false;
  const ValueId matrix = graph.layer(id).inputs[1];
  const Tensor* constant = graph.constant(matrix);
  return constant && constant->dtype() == DataType::kF32 && constant->dims().rank() == 2 &&
         constant->count() > 0 && !graph.is_output(matrix);
}

std::string why_stays_f32(const Graph& graph, ValueId matrix, double bytes, const PassRun& run) {
  for (const LayerId reader : users_of(graph, matrix))
    if (!multiplies_by(graph, reader, matrix)) return "another layer reads them";
  // Plans for other numbers of rows shall share the weights, so all count as many rows.
  constexpr int64_t kManyRows = 2;
  return why_cached(kManyRows, bytes, run.options);
}

NewLayer by_halves(const Graph& graph, LayerId reader, ValueId halves) {
  NewLayer product = copy_of(graph, reader);
  product.inputs[1] = halves;
  return product;
}

std::string why_targets_refuse(const Graph& graph, std::span<const LayerId> readers, ValueId halves,
                               const PassRun& run) {
  for (const LayerId reader : readers)
    if (std::string why = run.ask_targets(graph, by_halves(graph, reader, halves)); !why.empty())
      return why;
  return {};
}

}  // namespace anneal
