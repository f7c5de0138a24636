// Pooling, local and global.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

struct PoolOfInput {
  Pool op;
  Window window;
  ValueId input;  // padded, if the window's pads are open
};

// fill: what open pads hold. x: input 0 with channels first; first_axis: as of read_window().
PoolOfInput read_pool(Node& node, PoolKind kind, double fill, ValueId x, int first_axis = 2) {
  const Window window = read_window(node, ValueId::kNone, first_axis);
  const Pool op{.kind = kind,
                .kernel = window.kernel,
                .strides = window.strides,
                .pads_begin = window.pads_begin,
                .pads_end = window.pads_end,
                .dilations = window.dilations,
                .ceil_mode = node.flag("ceil_mode", false)};
  if (window.open_begin.empty()) return {op, window, x};
  const ValueId value = node.constant_value(tensor_of(node.dtype(0), {}, {fill}), "padding");
  return {op, window, padded_input(node, window, x, value)};
}
PoolOfInput read_pool(Node& node, PoolKind kind, double fill) {
  node.expect_inputs(1, 1);
  return read_pool(node, kind, fill, node.input(0));
}

double least_of(DataType dtype) {
  if (is_float(dtype)) return -std::numeric_limits<double>::infinity();
  return dtype == DataType::kI8 ? -128 : 0;
}

Outputs import_max_pool(Node& node) {
  const DataType dtype = node.dtype(0, kFloats | TypeSet{DataType::kI8, DataType::kU8});
  auto [op, window, input] = read_pool(node, PoolKind::kMax, least_of(dtype));
  op.column_major_indices = node.flag("storage_order", false);
  op.with_indices = node.has_output(1);
  if (op.with_indices) {
    // Indices count the elements of x, not of the padded tensor.
    if (input != node.input(0))
      node.unsupported("indices with auto_pad and a stride on an open size");
    return node.results(op, {input});
  }
  op.column_major_indices = false;
  return node.result(op, {input});
}

Outputs import_channels_last_max_pool(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats | TypeSet{DataType::kI8, DataType::kU8});
  const ValueId x = channels_first(node, node.input(0), "channels_first");
  const PoolOfInput pool = read_pool(node, PoolKind::kMax, least_of(node.dtype(0)), x, 1);
  return channels_last_result(node, node.layer(pool.op, {pool.input}, "max"));
}

Outputs import_average_pool(Node& node) {
  node.dtype(0, kFloats);
  auto [op, window, input] = read_pool(node, PoolKind::kAverage, 0);
  op.count_include_pad = node.flag("count_include_pad", false);
  if (input == node.input(0) || op.count_include_pad) return node.result(op, {input});
  // The average with padding, by the share of each window that is no padding.
  op.count_include_pad = true;
  std::vector<Size> spatial(2, Size(1));
  for (int axis = 2; axis < node.rank(0); ++axis) spatial.push_back(node.shape(0)[axis]);
  const DataType dtype = node.dtype(0);
  const ValueId one = node.constant_value(tensor_of(dtype, {}, {1}), "one");
  const ValueId ones = expanded(node, one, spatial, "ones");
  const ValueId zero = node.constant_value(tensor_of(dtype, {}, {0}), "no_share");
  const ValueId share = node.layer(op, {padded_input(node, window, ones, zero)}, "share");
  return epilogue_result(node, op, {input}, {share}, dtype,
                         [](Expressions in) { return in[0] / in[1]; });
}

Outputs lp_pool(Node& node, int64_t p) {
  node.dtype(0, kFloats);
  auto [op, window, input] = read_pool(node, PoolKind::kLp, 0);
  if (p < 1) node.invalid(fmt::format("attribute \"p\" is {}", p));
  op.p = p;
  return node.result(op, {input});
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

constexpr OpRow kPoolRows[] = {
    {"", "AveragePool", 1, kLatest, import_average_pool},
    {"", "GlobalAveragePool", 1, kLatest, import_global_pool<ReduceKind::kMean>},
    {"", "GlobalLpPool", 1, 1, import_global_lp_pool_float},
    {"", "GlobalLpPool", 2, kLatest, import_global_lp_pool},
    {"", "GlobalMaxPool", 1, kLatest, import_global_pool<ReduceKind::kMax>},
    {"", "LpPool", 1, 1, import_lp_pool_float},
    {"", "LpPool", 2, kLatest, import_lp_pool},
    {"", "MaxPool", 1, kLatest, import_max_pool},
    {kMicrosoft, "NhwcMaxPool", 1, kLatest, import_channels_last_max_pool},
};

}  // namespace

std::span<const OpRow> pool_rows() { return kPoolRows; }

}  // namespace anneal
