#include "anneal/engine/onnx/open_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/batch_axis.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/symbols.h"
#include "anneal/graph/op/batch_rows.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/pipeline/pipeline.h"

namespace anneal {
namespace {

// Where the rows of a batch lie in the values of a graph: on one axis of a value, whichever it is.
// The size of a result that values decide has a symbol of its own. It does not hide the number of
// rows, for a layer that reads that number as a value is refused (BatchOperand::counts_rows).
class GraphRows {
 public:
  GraphRows(const Graph& graph, Size rows)
      : graph_(graph), rows_(rows), symbol_(*graph.sizes().symbol_index(rows)) {}

  bool has_rows(ValueId id) const { return id != ValueId::kNone && operand(id).has_rows(); }
  // Whether other sizes of the value than that of one axis follow from the number of rows.
  bool lie_elsewhere(ValueId id) const {
    const Shape& shape = graph_.value(id).type().shape;
    const auto follows = [&](Size size) { return follows_from_rows(size); };
    return std::count_if(shape.begin(), shape.end(), follows) != (has_rows(id) ? 1 : 0);
  }
  // Asked about each layer, in order.
  bool keeps_rows_apart(const Layer& layer) {
    std::vector<BatchOperand> inputs, outputs;
    for (const ValueId id : layer.inputs) inputs.push_back(operand(id));
    for (const ValueId id : layer.outputs) outputs.push_back(operand(id));
    if (layer.epilogues.empty() && gives_sizes_of_rows(layer)) {
      counts_rows_.insert(layer.outputs[0]);
      return true;
    }
    return computes_rows_apart({.op = layer.op,
                                .epilogues = layer.epilogues,
                                .op_input_count = static_cast<size_t>(layer.op_input_count),
                                .inputs = inputs,
                                .outputs = outputs});
  }

 private:
  bool follows_from_rows(Size size) const { return contains_symbol(graph_.sizes(), size, symbol_); }
  bool gives_sizes_of_rows(const Layer& layer) const {
    if (const auto* sizes = std::get_if<SizeTensor>(&layer.op))
      return std::ranges::any_of(sizes->elements,
                                 [&](Size size) { return follows_from_rows(size); });
    return std::holds_alternative<ShapeOf>(layer.op) && has_rows(layer.inputs[0]);
  }
  BatchOperand operand(ValueId id) const {
    if (id == ValueId::kNone) return {};
    const Fact& fact = graph_.value(id).fact;
    const Shape& shape = fact.type.shape;
    BatchOperand result = {.shape = &shape, .counts_rows = counts_rows_.contains(id)};
    const auto* const axis = std::find(shape.begin(), shape.end(), rows_);
    if (axis != shape.end()) result.axis = static_cast<int>(axis - shape.begin());
    if (fact.elements) result.elements = &*fact.elements;
    return result;
  }

  const Graph& graph_;
  Size rows_;
  uint32_t symbol_;
  std::set<ValueId> counts_rows_;  // an element follows from the number of rows
};

std::string shown_type(const Graph& graph, ValueId id) {
  return to_string(graph.value(id).type(), graph.sizes());
}

// Why a row of the outputs may depend on other rows; empty: none does.
std::string why_rows_mix(const Graph& graph, Size size) {
  GraphRows rows(graph, size);
  const auto why_elsewhere = [&](const std::vector<ValueId>& values) -> std::string {
    for (const ValueId id : values)
      if (rows.lie_elsewhere(id))
        return fmt::format("the rows are no axis of value \"{}\", which is {}",
                           graph.value(id).name, shown_type(graph, id));
    return {};
  };
  if (std::string why = why_elsewhere(graph.inputs()); !why.empty()) return why;
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (std::string why = why_elsewhere(layer.outputs); !why.empty()) return why;
    if (!rows.keeps_rows_apart(layer))
      return fmt::format("layer \"{}\" ({}) mixes rows", layer.name, op_name(layer.op.index()));
  }
  for (const Graph::Output& output : graph.outputs())
    if (!rows.has_rows(output.value)) return fmt::format("output \"{}\" has no rows", output.name);
  return {};
}

// Names the first layer that reads the batch and has a result without it, where a proof most likely
// fails. Empty: none does.
std::string first_without_rows(const Graph& graph, Size size) {
  const GraphRows rows(graph, size);
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    if (std::holds_alternative<ShapeOf>(layer.op) ||
        std::ranges::none_of(layer.inputs, [&](ValueId input) { return rows.has_rows(input); }))
      continue;
    for (const ValueId output : layer.outputs)
      if (!rows.has_rows(output))
        return fmt::format("; \"{}\" ({}) reads the batch, but its result is {}", layer.name,
                           to_string(layer.op), shown_type(graph, output));
  }
  return {};
}

// The proof is one of the optimized graph: passes remove layers that fix or mix rows in form only.
// A plan may prove what a graph does not: its steps do not read values that are only views.
void prove_rows_apart(const ImportResult& imported) {
  Graph graph = imported.graph.clone();
  run_pipeline(graph, default_pipeline(), {});
  const Size rows = imported.batch->rows;
  const std::string why = why_rows_mix(graph, rows);
  if (why.empty()) return;
  const EngineFile file = build(imported.graph.clone());
  const Plan& plan = file.plans.front();
  const auto symbol = separable_batch(plan);
  if (!symbol || plan.sizes->symbols()[*symbol].name != imported.graph.sizes().text(rows))
    fail(ErrorCode::kUnsupported, why + first_without_rows(imported.graph, rows));
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
