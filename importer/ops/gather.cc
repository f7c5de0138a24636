// Elements taken and put by index.
#include "anneal/importer/ops/rows.h"

#include <fmt/format.h>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

int64_t axis_of(Node& node, int64_t otherwise) {
  return node.resolve_axis(node.integer("axis", otherwise), node.rank(0));
}

void expect_indices(Node& node, int count) {
  node.expect_inputs(count, count);
  node.dtype(1, kIndices);
}

Outputs import_gather(Node& node) {
  expect_indices(node, 2);
  return node.result(Gather{.axis = axis_of(node, 0)}, {node.input(0), node.input(1)});
}

Outputs import_gather_elements(Node& node) {
  expect_indices(node, 2);
  return node.result(GatherElements{.axis = axis_of(node, 0)}, {node.input(0), node.input(1)});
}

Outputs import_gather_nd(Node& node) {
  expect_indices(node, 2);
  const int64_t batch_dims = node.integer("batch_dims", 0);
  if (batch_dims < 0 || batch_dims >= node.rank(0) || batch_dims >= node.rank(1))
    node.invalid(fmt::format("{} batch axes", batch_dims));
  return node.result(GatherND{.batch_dims = batch_dims}, {node.input(0), node.input(1)});
}

ScatterReduction reduction_of(Node& node) {
  constexpr ScatterReduction kKinds[] = {ScatterReduction::kNone, ScatterReduction::kAdd,
                                         ScatterReduction::kMul, ScatterReduction::kMax,
                                         ScatterReduction::kMin};
  return kKinds[node.choice("reduction", {"none", "add", "mul", "max", "min"})];
}

Outputs scatter_elements(Node& node, ScatterReduction reduction) {
  expect_indices(node, 3);
  node.expect_same_dtype({0, 2});
  const ScatterElements op{.axis = axis_of(node, 0), .reduction = reduction};
  return node.result(op, {node.input(0), node.input(1), node.input(2)});
}
Outputs import_scatter(Node& node) { return scatter_elements(node, ScatterReduction::kNone); }
Outputs import_scatter_elements(Node& node) { return scatter_elements(node, reduction_of(node)); }

Outputs scatter_nd(Node& node, ScatterReduction reduction) {
  expect_indices(node, 3);
  node.dtype(1, {DataType::kI64});
  node.expect_same_dtype({0, 2});
  return node.result(ScatterND{.reduction = reduction},
                     {node.input(0), node.input(1), node.input(2)});
}
Outputs import_scatter_nd(Node& node) { return scatter_nd(node, ScatterReduction::kNone); }
Outputs import_scatter_nd_reduction(Node& node) { return scatter_nd(node, reduction_of(node)); }

// The cache of keys or values with new ones written from a position on, for each batch.
Outputs import_tensor_scatter(Node& node) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1});
  const Shape cache = node.shape(0), update = node.shape(1);
  const int rank = cache.rank();
  if (update.rank() != rank) node.invalid(fmt::format("an update of {} axes", update.rank()));
  const int64_t axis = node.resolve_axis(node.integer("axis", -2), rank);
  const bool circular = node.choice("mode", {"linear", "circular"}) == 1;
  const ValueId zero = scalar_value(node, 0, "zero");
  std::vector<ValueId> inputs = {expanded(node, zero, {update.begin(), update.end()}, "no_offset"),
                                 node.sizes_value({cache[static_cast<int>(axis)]}, "length")};
  if (node.has_input(2)) {
    std::vector<Size> batches(static_cast<size_t>(rank), 1);
    batches[0] = cache[0];
    inputs.push_back(reshape(node, as_i64(node, node.input(2), "starts"), batches, "starts_of"));
  }
  const ValueId places = pointwise(node, "places", inputs, DataType::kI64, [&](Expressions in) {
    Expression place = in[0] + in[0].index(static_cast<int>(axis));
    if (in.size() > 2) place = place + in[2];
    return circular ? place.apply(Opcode::kMod, in[1]) : place;
  });
  return node.result(ScatterElements{.axis = axis}, {node.input(0), places, node.input(1)});
}

constexpr OpRow kGatherRows[] = {
    {"", "Gather", 1, kLatest, import_gather},
    {"", "GatherElements", 11, kLatest, import_gather_elements},
    {"", "GatherND", 11, kLatest, import_gather_nd},
    {kMicrosoft, "GatherND", 1, kLatest, import_gather_nd},
    {"", "Scatter", 9, kLatest, import_scatter},
    {"", "ScatterElements", 11, 15, import_scatter},
    {"", "ScatterElements", 16, kLatest, import_scatter_elements},
    {"", "ScatterND", 11, 15, import_scatter_nd},
    {"", "ScatterND", 16, kLatest, import_scatter_nd_reduction},
    {"", "TensorScatter", 24, kLatest, import_tensor_scatter},
};

}  // namespace

std::span<const OpRow> gather_rows() { return kGatherRows; }

}  // namespace anneal
