#include "anneal/engine/onnx/open_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/batch_axis.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/plan.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

// Names the first layer that reads the batch and has a result without it on axis 0, where a proof
// most likely fails. Empty: none does.
std::string first_without_rows(const Graph& graph, Size rows) {
  const auto has_rows = [&](ValueId id) {
    if (id == ValueId::kNone) return false;
    const Shape& shape = graph.value(id).type().shape;
    return shape.rank() > 0 && shape[0] == rows;
  };
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (std::holds_alternative<ShapeOf>(layer.op) || std::ranges::none_of(layer.inputs, has_rows))
      continue;
    for (const ValueId output : layer.outputs)
      if (!has_rows(output))
        return fmt::format(
            "; \"{}\" ({}) has the batch on axis 0 of an input, but its result is {}", layer.name,
            to_string(layer.op), to_string(graph.value(output).type(), graph.sizes()));
  }
  return {};
}

// The proof is one of plans for the CPU, whatever the target.
void prove_rows_apart(const ImportResult& imported) {
  const EngineFile file = build(imported.graph.clone());
  const Plan& plan = file.plans.front();
  const auto rows = separable_batch(plan);
  if (!rows)
    fail(ErrorCode::kUnsupported,
         rows.reason() + first_without_rows(imported.graph, imported.batch->rows));
  const std::string& name = plan.sizes->symbols()[*rows].name;
  const std::string wanted = imported.graph.sizes().text(imported.batch->rows);
  if (name != wanted)
    fail(ErrorCode::kUnsupported,
         fmt::format("the rows of the outputs are {}, not the batch that is opened", name));
}

}  // namespace

void settle_batch(ImportResult& imported) {
  if (!imported.batch) return;
  const OpenBatch& batch = *imported.batch;
  with_context([&] { return opening(batch); }, [&] { prove_rows_apart(imported); });
  SizeTable& sizes = imported.graph.sizes();
  Bounds bounds = batch.bounds;
  // The import found sizes that suit all layers.
  if (bounds.max == Bounds().max) bounds.opt = sizes.range(batch.rows).opt;
  sizes.set_bounds(batch.rows, bounds);
  imported.graph.refine();
}

}  // namespace anneal
