// Pooling, local and global.
#include <cmath>
#include <numeric>

#include "anneal/importer/expression.h"
#include "anneal/importer/rows.h"
#include "anneal/importer/window.h"

namespace anneal {
namespace {

Pool read_pool(Node& node, PoolKind kind) {
  node.expect_inputs(1, 1);
  const Window window = read_window(node);
  return {.kind = kind,
          .kernel = window.kernel,
          .strides = window.strides,
          .pads_begin = window.pads_begin,
          .pads_end = window.pads_end,
          .dilations = window.dilations,
          .ceil_mode = node.flag("ceil_mode", false)};
}

Outputs import_max_pool(Node& node) {
  node.dtype(0, kFloats | TypeSet{DataType::kI8, DataType::kU8});
  Pool op = read_pool(node, PoolKind::kMax);
  op.column_major_indices = node.flag("storage_order", false);
  op.with_indices = node.has_output(1);
  if (op.with_indices) return node.results(op, {node.input(0)});
  op.column_major_indices = false;
  return node.result(op, {node.input(0)});
}

Outputs import_average_pool(Node& node) {
  node.dtype(0, kFloats);
  Pool op = read_pool(node, PoolKind::kAverage);
  op.count_include_pad = node.flag("count_include_pad", false);
  return node.result(op, {node.input(0)});
}

Outputs lp_pool(Node& node, int64_t p) {
  node.dtype(0, kFloats);
  Pool op = read_pool(node, PoolKind::kLp);
  if (p < 1) node.invalid("attribute \"p\" is " + std::to_string(p));
  op.p = p;
  return node.result(op, {node.input(0)});
}
Outputs import_lp_pool_float(Node& node) {
  const float p = node.number("p", 2);
  if (p != std::trunc(p) || !(p < 1 << 20)) node.unsupported("a norm that is no integer");
  return lp_pool(node, static_cast<int64_t>(p));
}
Outputs import_lp_pool(Node& node) { return lp_pool(node, node.integer("p", 2)); }

ValueId spatial(Node& node) {
  node.expect_inputs(1, 1);
  std::vector<int64_t> axes(static_cast<size_t>(spatial_axes(node)));
  std::iota(axes.begin(), axes.end(), 2);
  return node.integers_value(axes, "axes");
}

template <ReduceKind kind>
Outputs import_global_pool(Node& node) {
  node.dtype(0, kFloats);
  return node.result(Reduce{.kind = kind}, {node.input(0), spatial(node)});
}

// sum(|x|^p)^(1/p); 16-bit floats stay in f32 in between.
Outputs global_lp_pool(Node& node, double p) {
  const DataType dtype = node.dtype(0, kFloats);
  const DataType real = dtype == DataType::kF64 ? dtype : DataType::kF32;
  if (!(p > 0)) node.invalid("attribute \"p\" is not positive");
  const auto power = [](Expression x, double exponent) {
    return x.apply(Opcode::kPow, x.number(exponent));
  };
  const ValueId terms = pointwise(node, "terms", {node.input(0)}, real, [&](Expressions in) {
    return power(in[0].apply(Opcode::kAbs), p);
  });
  const ValueId sum = node.layer(Reduce{}, {terms, spatial(node)}, "sum");
  return pointwise_result(node, {sum}, dtype, [&](Expressions in) { return power(in[0], 1 / p); });
}
Outputs import_global_lp_pool_float(Node& node) {
  return global_lp_pool(node, node.number("p", 2));
}
Outputs import_global_lp_pool(Node& node) {
  return global_lp_pool(node, static_cast<double>(node.integer("p", 2)));
}

constexpr OpRow kRows[] = {
    {"", "AveragePool", 1, kLatest, import_average_pool},
    {"", "GlobalAveragePool", 1, kLatest, import_global_pool<ReduceKind::kMean>},
    {"", "GlobalLpPool", 1, 1, import_global_lp_pool_float},
    {"", "GlobalLpPool", 2, kLatest, import_global_lp_pool},
    {"", "GlobalMaxPool", 1, kLatest, import_global_pool<ReduceKind::kMax>},
    {"", "LpPool", 1, 1, import_lp_pool_float},
    {"", "LpPool", 2, kLatest, import_lp_pool},
    {"", "MaxPool", 1, kLatest, import_max_pool},
};

}  // namespace

std::span<const OpRow> pool_rows() { return kRows; }

}  // namespace anneal
