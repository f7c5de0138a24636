// Operators that select by value: the number of selected elements is known only at run time.
#include "anneal/importer/ops/rows.h"

#include <fmt/format.h>

#include "anneal/importer/ops/expression.h"

namespace anneal {
namespace {

Outputs import_nonzero(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kNumbersAndBooleans);
  return node.result(NonZero{}, {node.input(0)});
}

Outputs import_unique(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kNumbersAndBooleans);
  Unique op{.sorted = node.flag("sorted", true)};
  if (const auto axis = node.find_integer("axis")) {
    op.flatten = false;
    op.axis = node.resolve_axis(*axis, node.rank(0));
  }
  return node.results(op, {node.input(0)});
}

// The elements, or slices, where the condition is true: those with the indices NonZero finds.
Outputs import_compress(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(1, kBooleans);
  if (node.rank(1) != 1) node.invalid(fmt::format("a condition of {} axes", node.rank(1)));
  ValueId x = node.input(0);
  int64_t axis = 0;
  if (const auto given = node.find_integer("axis")) {
    axis = node.resolve_axis(*given, node.rank(0));
  } else {
    x = reshape(node, x, {product(node.shape(0), node.sizes())}, "flat");
  }
  const ValueId found = node.layer(NonZero{}, {node.input(1)}, "found");
  const ValueId list = node.integers_value({-1}, "list");
  const ValueId indices = node.layer(Reshape{}, {found, list}, "indices");
  return node.result(Gather{.axis = axis}, {x, indices});
}

Outputs import_non_max_suppression(Node& node) {
  node.expect_inputs(2, 5);
  const NonMaxSuppression op{.center_point_box = node.flag("center_point_box", false)};
  std::vector<ValueId> inputs;
  for (int i = 0; i < node.input_count(); ++i) inputs.push_back(node.optional_input(i));
  return node.result(op, inputs);
}

constexpr OpRow kSelectRows[] = {
    {"", "Compress", 9, kLatest, import_compress},
    {"", "NonMaxSuppression", 10, kLatest, import_non_max_suppression},
    {"", "NonZero", 9, kLatest, import_nonzero},
    {"", "Unique", 11, kLatest, import_unique},
};

}  // namespace

std::span<const OpRow> select_rows() { return kSelectRows; }

}  // namespace anneal
