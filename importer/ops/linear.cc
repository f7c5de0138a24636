// Convolutions, matrix products and determinants; a bias is added in its layer's epilogue.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/gemm.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

Outputs with_bias(Node& node, Op op, const std::vector<ValueId>& inputs, int bias) {
  if (!node.has_input(bias)) return node.result(std::move(op), inputs);
  node.expect_same_dtype({0, bias});
  const ValueId channels = per_channel(node, node.input(bias), node.rank(0), "bias_per_channel");
  return epilogue_result(node, std::move(op), inputs, {channels}, node.dtype(0),
                         [](Expressions in) { return in[0] + in[1]; });
}

Outputs import_conv(Node& node) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1});
  node.dtype(0, kFloats);
  const auto [op, input] = read_conv(node, node.input(0), node.input(1));
  return with_bias(node, op, {input, node.input(1)}, 2);
}

// x[N,spatial...,C] and weights[M,kernel...,C / groups], as ONNX Runtime's optimizer writes them.
Outputs import_channels_last_conv(Node& node) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1, 2});
  const DataType dtype = node.dtype(0, kFloats);
  spatial_axes(node);
  if (node.rank(1) != node.rank(0)) node.invalid("weights and x of different ranks");
  const ValueId x = channels_first(node, node.input(0), "channels_first");
  const ValueId weights = channels_first(node, node.input(1), "weights_channels_first");
  const auto [op, input] = read_conv(node, x, weights, ValueId::kNone, 1);
  std::vector<ValueId> bias;
  if (node.has_input(2))
    bias.push_back(per_channel(node, node.input(2), node.rank(0), "bias_per_channel"));
  const ValueId y = epilogue_result(
      node, op, {input, weights}, bias, dtype,
      [](Expressions in) { return in.size() == 2 ? in[0] + in[1] : in[0]; }, "conv")[0];
  return channels_last_result(node, y);
}

// Padding around the result of a transposed convolution, or, if negative, cropping, where an open
// size decides. Empty, or one per axis of the result.
struct Frame {
  std::vector<Size> begin, end;
};

// output_shape decides the pads; a negative rest is padding of the output.
Frame pad_to_output_shape(Node& node, const std::vector<int64_t>& wanted, AutoPad auto_pad,
                          Window& window, std::vector<int64_t>& output_padding) {
  const size_t axes = window.kernel.size();
  // Some exporters write the whole shape, batch and channels included.
  if (wanted.size() != axes && wanted.size() != axes + 2)
    node.invalid(fmt::format("attribute \"output_shape\": {} values", wanted.size()));
  SizeTable& sizes = node.sizes();
  Frame frame;
  for (size_t i = 0; i < axes; ++i) {
    const Size size = node.shape(0)[static_cast<int>(i) + 2];
    const int64_t rest = output_padding[i] + (window.kernel[i] - 1) * window.dilations[i] + 1 -
                         wanted[wanted.size() - axes + i];
    const Size total = sizes.add(sizes.mul(sizes.sub(size, 1), window.strides[i]), rest);
    if (total.known()) {
      if (total.value() < 0) output_padding[i] -= total.value();
      set_pads(window, i, std::max<int64_t>(total.value(), 0), auto_pad);
      continue;
    }
    frame.begin.resize(axes + 2, Size(0));
    frame.end.resize(axes + 2, Size(0));
    const Size cut = sizes.max(total, 0), half = sizes.floor_div(cut, 2);
    const Size at_begin = auto_pad == AutoPad::kSameUpper ? half : sizes.sub(cut, half);
    frame.begin[i + 2] = sizes.sub(0, at_begin);
    frame.end[i + 2] = sizes.sub(at_begin, total);
  }
  return frame;
}

Outputs import_conv_transpose(Node& node) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1});
  node.dtype(0, kFloats);
  Window window = read_unpadded_window(node, node.input(1));
  const size_t axes = window.kernel.size();
  const AutoPad auto_pad = read_auto_pad(node);
  auto output_padding =
      node.find_integers("output_padding").value_or(std::vector<int64_t>(axes, 0));
  if (output_padding.size() != axes)
    node.invalid(fmt::format("attribute \"output_padding\": {} values", output_padding.size()));
  Frame frame;
  if (const auto wanted = node.find_integers("output_shape")) {
    node.ignore("pads");
    frame = pad_to_output_shape(node, *wanted, auto_pad, window, output_padding);
  } else if (auto_pad == AutoPad::kNotSet) {
    read_pads(node, window);
  } else {
    node.ignore("pads");
    for (size_t i = 0; i < axes && auto_pad != AutoPad::kValid; ++i) {
      const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
      const int64_t total = reach + output_padding[i] - window.strides[i];
      if (total < 0) output_padding[i] -= total;
      set_pads(window, i, std::max<int64_t>(total, 0), auto_pad);
    }
  }
  const ConvTranspose op{.strides = window.strides,
                         .pads_begin = window.pads_begin,
                         .pads_end = window.pads_end,
                         .dilations = window.dilations,
                         .output_padding = output_padding,
                         .groups = node.integer("group", 1)};
  if (op.groups < 1) node.invalid(fmt::format("attribute \"group\" is {}", op.groups));
  const std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (frame.begin.empty()) return with_bias(node, op, inputs, 2);
  std::vector<Size> pads = frame.begin;
  pads.insert(pads.end(), frame.end.begin(), frame.end.end());
  const ValueId whole = node.layer(op, inputs, "whole");
  return with_bias(node, Pad{}, {whole, node.sizes_value(pads, "frame")}, 2);
}

// Vectors become matrices of one row or one column, and the product loses that axis again.
Outputs import_mat_mul(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  node.dtype(0, kFloats | TypeSet{DataType::kI32, DataType::kI64, DataType::kU32, DataType::kU64});
  const Shape &a = node.shape(0), &b = node.shape(1);
  if (a.rank() == 0 || b.rank() == 0) node.invalid("a product with a scalar");
  if (a.rank() > 1 && b.rank() > 1) return node.result(MatMul{}, {node.input(0), node.input(1)});
  const ValueId row =
      a.rank() > 1 ? node.input(0) : reshape(node, node.input(0), {Size(1), a[0]}, "row");
  const ValueId column =
      b.rank() > 1 ? node.input(1) : reshape(node, node.input(1), {b[0], Size(1)}, "column");
  const bool from_row = a.rank() == 1, from_column = b.rank() == 1;
  const ValueId product = node.layer(MatMul{}, {row, column}, "");
  const Shape whole = node.graph().value(product).type().shape;
  std::vector<Size> kept;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const bool drop =
        (from_row && axis == whole.rank() - 2) || (from_column && axis == whole.rank() - 1);
    if (!drop) kept.push_back(whole[axis]);
  }
  return reshape_result(node, product, kept, "squeezed");
}

}  // namespace

// alpha * a * b + beta * c, activated
Outputs gemm(Node& node, const FunctionRef<Expression(Expression)>* activation) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1, 2});
  const DataType dtype = node.dtype(
      0, kFloats | TypeSet{DataType::kI32, DataType::kI64, DataType::kU32, DataType::kU64});
  const float alpha = node.number("alpha", 1), beta = node.number("beta", 1);
  const MatMul op{.transpose_a = node.flag("transA", false),
                  .transpose_b = node.flag("transB", false)};
  if (node.rank(0) != 2 || node.rank(1) != 2) node.invalid("two matrices are expected");
  const bool has_c = node.has_input(2) && beta != 0;
  const std::vector<ValueId> factors = {node.input(0), node.input(1)};
  if (!has_c && alpha == 1 && activation == nullptr) return node.result(op, factors);
  if (!is_float(dtype) && (alpha != 1 || (has_c && beta != 1)))
    node.unsupported("alpha or beta other than 1 on integers");
  std::vector<ValueId> addends;
  if (has_c) addends.push_back(node.input(2));
  const auto scaled = [](Expression term, float factor) {
    return factor == 1 ? term : term * static_cast<double>(factor);
  };
  return epilogue_result(node, op, factors, addends, dtype, [&](Expressions in) {
    const Expression product = scaled(in[0], alpha);
    const Expression sum = has_c ? product + scaled(in[1], beta) : product;
    return activation == nullptr ? sum : (*activation)(sum);
  });
}

namespace {

Outputs import_float_gemm(Node& node) { return gemm(node, nullptr); }

// C broadcasts from the right where it does at all, as numpy does.
Outputs import_gemm_with_broadcast(Node& node) {
  node.ignore("broadcast");
  return import_float_gemm(node);
}

// The determinant of the rows [row, n) and of `columns`, expanded by the first row.
Expression determinant(Expressions elements, int64_t n, int64_t row, std::vector<int64_t> columns) {
  const auto element = [&](int64_t column) {
    return elements[static_cast<size_t>(row * n + column)];
  };
  if (columns.size() == 1) return element(columns[0]);
  std::optional<Expression> sum;
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<int64_t> others = columns;
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    const Expression term = element(columns[i]) * determinant(elements, n, row + 1, others);
    sum = !sum ? term : i % 2 == 0 ? *sum + term : *sum - term;
  }
  return *sum;
}

Outputs import_det(Node& node) {
  static constexpr int64_t kMost = 4;
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFloats);
  const Shape& x = node.shape(0);
  const int rank = x.rank();
  if (rank < 2) node.invalid("a matrix is expected");
  const Size n = x[rank - 1];
  if (!n.known() || !x[rank - 2].known()) node.unsupported("matrices of unknown size");
  if (!(n == x[rank - 2])) node.invalid("matrices that are not square");
  if (n.value() < 1 || n.value() > kMost)
    node.unsupported(fmt::format("determinants of matrices larger than {}", kMost));
  const std::vector<Size> batch(x.begin(), x.end() - 2);
  std::vector<Size> rows = batch;
  rows.push_back(node.sizes().mul(n, n));
  const ValueId flat = reshape(node, node.input(0), rows, "rows");
  const ValueId axis = node.integers_value({rank - 2}, "axis");
  const ValueId step = node.integers_value({1}, "step");
  std::vector<ValueId> elements;
  for (int64_t i = 0; i < n.value() * n.value(); ++i) {
    const std::string suffix = fmt::format("element{}", i);
    elements.push_back(node.layer(Slice{},
                                  {flat, node.integers_value({i}, suffix + "/start"),
                                   node.integers_value({i + 1}, suffix + "/end"), axis, step},
                                  suffix));
  }
  std::vector<int64_t> columns(static_cast<size_t>(n.value()));
  std::iota(columns.begin(), columns.end(), 0);
  const ValueId determinants =
      pointwise(node, "determinants", elements, dtype,
                [&](Expressions in) { return determinant(in, n.value(), 0, columns); });
  return reshape_result(node, determinants, batch);
}

constexpr OpRow kLinearRows[] = {
    {"", "Conv", 1, kLatest, import_conv},
    {"", "ConvTranspose", 1, kLatest, import_conv_transpose},
    {"", "Det", 11, kLatest, import_det},
    {"", "Gemm", 1, 6, import_gemm_with_broadcast},
    {"", "Gemm", 7, kLatest, import_float_gemm},
    {"", "MatMul", 1, kLatest, import_mat_mul},
    {kMicrosoft, "NhwcConv", 1, kLatest, import_channels_last_conv},
};

}  // namespace

std::span<const OpRow> linear_rows() { return kLinearRows; }

}  // namespace anneal
