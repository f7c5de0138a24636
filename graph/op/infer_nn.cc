// Shape rules of the ops of neural networks: windows, products, normalization, quantization.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::refuse;

// One value per spatial axis, each at least `least`.
void require_spatial(const std::vector<int64_t>& values, int spatial, int64_t least,
                     std::string_view what) {
  if (static_cast<int>(values.size()) != spatial)
    refuse(fmt::format("{} {} for {} spatial axes", values.size(), what, spatial));
  for (int64_t value : values)
    if (value < least) refuse(fmt::format("{} of {}", what, value));
}

int spatial_axes(const Shape& x) {
  if (x.rank() < 3) refuse(fmt::format("a tensor of rank {} has no spatial axes", x.rank()));
  return x.rank() - 2;
}

void require_groups(int64_t groups, Size channels, std::string_view what) {
  if (groups < 1) refuse(fmt::format("{} groups", groups));
  if (channels.known() && channels.value() % groups != 0)
    refuse(fmt::format("{} {} in {} groups", channels.value(), what, groups));
}

// How far a window reaches: (kernel - 1) * dilation + 1.
Size reach(Size kernel, int64_t dilation, SizeTable& sizes) {
  if (kernel.known() && kernel.value() < 1) refuse("a window of no elements");
  return sizes.add(sizes.mul(sizes.sub(kernel, 1), dilation), 1);
}

Size windows(Size padded, Size window, int64_t stride, SizeTable& sizes) {
  const Size count = sizes.add(sizes.floor_div(sizes.sub(padded, window), stride), 1);
  if (!count.is_unknown() && sizes.range(count).max < 1)
    refuse(fmt::format("a window of {} is larger than the padded input of {}", sizes.text(window),
                       sizes.text(padded)));
  return count;
}

// Checks the operands of a product: equal float types, or 8-bit ones, which may have zero points.
DataType product_type(const InferInputs& inputs, bool is_matmul) {
  const DataType x = inputs.dtype(0), w = inputs.dtype(1);
  const bool eight = is_8bit(x) && is_8bit(w);
  for (int i = 2; i < inputs.count(); ++i) {
    if (!inputs.has(i)) continue;
    if (!eight) refuse(fmt::format("a zero point for {} and {}", to_string(x), to_string(w)));
    rules::require_dtype(inputs, i, inputs.dtype(i - 2));
  }
  if (eight) return DataType::kI32;
  if (is_matmul && x == DataType::kF32 && is_half(w)) return x;
  if (x != w) refuse(fmt::format("operands are {} and {}", to_string(x), to_string(w)));
  if (!is_float(x) && !(is_matmul && is_integer(x) && size_of(x) >= 4))
    refuse(fmt::format("operands are {}", to_string(x)));
  return x;
}

// A scalar, or one per channel of `size`.
void require_zero_point(const InferInputs& inputs, int i, Size size) {
  if (!inputs.has(i)) return;
  const Shape& shape = inputs.shape(i);
  const SizeTable& sizes = inputs.sizes();
  if (shape.rank() > 1 || (shape.rank() == 1 && rules::surely_differ(shape[0], 1, sizes) &&
                           rules::surely_differ(shape[0], size, sizes)))
    refuse(
        fmt::format("zero point of shape {} for {} channels", sizes.text(shape), sizes.text(size)));
}

// The type of a product by quantized weights, which has scales: see MatMul in ops.h.
// weights_depth: their K.
DataType quantized_weights_type(const MatMul& op, const InferInputs& inputs, Size weights_depth) {
  const Shape &b = inputs.shape(1), &scale = inputs.shape(4);
  const DataType a = inputs.dtype(0);
  if (a != DataType::kF32 && !is_half(a))
    refuse(fmt::format("quantized weights for data of {}", to_string(a)));
  rules::require_dtype(inputs, 4, DataType::kF32);
  if (!is_8bit(inputs.dtype(1)))
    refuse(fmt::format("a scale for weights of {}", to_string(inputs.dtype(1))));
  if (op.b_encoding != WeightEncoding::kIntegers &&
      (inputs.dtype(1) != DataType::kU8 || !op.transpose_b))
    refuse("codes of weights that are not u8 with a row for each column");
  if (inputs.has(2)) refuse(fmt::format("a zero point for data of {}", to_string(a)));
  if (b.rank() != 2 || scale.rank() != 2)
    refuse(fmt::format("weights of rank {} with scales of rank {}", b.rank(), scale.rank()));
  const int depth = op.transpose_b ? 1 : 0, column = 1 - depth;
  const auto serves = [](Size size, Size many) {
    return size.known() && many.known() && size.value() > 0 && many.value() % size.value() == 0;
  };
  const bool per_column = scale[column] == Size(1) || scale[column] == b[column];
  if (!serves(scale[depth], weights_depth) || !per_column)
    refuse(fmt::format("scales of shape {} for weights of shape {}", inputs.sizes().text(scale),
                       inputs.sizes().text(b)));
  if (inputs.has(3)) {
    if (!has_integers(op.b_encoding)) refuse("zero points of weights that are floats");
    rules::require_dtype(inputs, 3, inputs.dtype(1));
    if (inputs.shape(3) != scale)
      refuse(fmt::format("zero points of shape {} for scales of shape {}",
                         inputs.sizes().text(inputs.shape(3)), inputs.sizes().text(scale)));
  }
  return a;
}

// One output of this shape, or one for each part of this axis.
Facts split_outputs(const std::vector<int64_t>& split, DataType dtype, Shape shape, int axis,
                    SizeTable& sizes) {
  if (split.empty()) return {rules::make_fact(dtype, shape)};
  Facts facts;
  Size sum(0);
  for (const int64_t part : split) {
    if (part < 1) refuse(fmt::format("split in a part of {}", part));
    sum = sizes.add(sum, part);
  }
  rules::agree(shape[axis], sum, sizes, "size to split and sum of split");
  for (const int64_t part : split) {
    shape[axis] = part;
    facts.push_back(rules::make_fact(dtype, shape));
  }
  return facts;
}

}  // namespace

Facts infer(const Conv& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Shape &x = inputs.shape(0), &w = inputs.shape(1);
  const int spatial = spatial_axes(x);
  if (w.rank() != x.rank())
    refuse(fmt::format("weights of rank {} for an input of rank {}", w.rank(), x.rank()));
  const DataType dtype = product_type(inputs, false);
  require_spatial(op.strides, spatial, 1, "strides");
  require_spatial(op.pads_begin, spatial, 0, "pads_begin");
  require_spatial(op.pads_end, spatial, 0, "pads_end");
  require_spatial(op.dilations, spatial, 1, "dilations");
  require_groups(op.groups, x[1], "input channels");
  require_groups(op.groups, w[0], "output channels");
  rules::agree(x[1], sizes.mul(w[1], op.groups), inputs, "input channels");
  if (inputs.has(2)) rules::require_scalar(inputs, 2, "zero point");
  require_zero_point(inputs, 3, w[0]);
  Shape shape{x[0], w[0]};
  for (int i = 0; i < spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    const Size padded = sizes.add(sizes.add(x[i + 2], op.pads_begin[at]), op.pads_end[at]);
    shape.push_back(
        windows(padded, reach(w[i + 2], op.dilations[at], sizes), op.strides[at], sizes));
  }
  if (!op.split.empty() && op.groups != 1) refuse(fmt::format("split of {} groups", op.groups));
  return split_outputs(op.split, dtype, shape, 1, sizes);
}

Facts infer(const ConvTranspose& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Shape &x = inputs.shape(0), &w = inputs.shape(1);
  const int spatial = spatial_axes(x);
  if (w.rank() != x.rank())
    refuse(fmt::format("weights of rank {} for an input of rank {}", w.rank(), x.rank()));
  rules::require_float(inputs, 0);
  rules::require_dtype(inputs, 1, inputs.dtype(0));
  require_spatial(op.strides, spatial, 1, "strides");
  require_spatial(op.pads_begin, spatial, 0, "pads_begin");
  require_spatial(op.pads_end, spatial, 0, "pads_end");
  require_spatial(op.dilations, spatial, 1, "dilations");
  require_spatial(op.output_padding, spatial, 0, "output_padding");
  require_groups(op.groups, x[1], "input channels");
  rules::agree(x[1], w[0], inputs, "input channels");
  Shape shape{x[0], sizes.mul(w[1], op.groups)};
  for (int i = 0; i < spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    Size size = sizes.mul(sizes.sub(x[i + 2], 1), op.strides[at]);
    size = sizes.add(size, reach(w[i + 2], op.dilations[at], sizes));
    size = sizes.add(size, op.output_padding[at]);
    shape.push_back(sizes.sub(sizes.sub(size, op.pads_begin[at]), op.pads_end[at]));
  }
  return {rules::make_fact(inputs.dtype(0), shape)};
}

Facts infer(const MatMul& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Shape &a = inputs.shape(0), &b = inputs.shape(1);
  if (a.rank() < 2 || b.rank() < 2)
    refuse(fmt::format("operands of ranks {} and {}", a.rank(), b.rank()));
  const bool has_scale = inputs.has(4);
  const auto size = [](const Shape& shape, bool transpose, int from_end) {
    return shape[shape.rank() - (transpose ? 3 - from_end : from_end)];
  };
  if (op.b_encoding != WeightEncoding::kIntegers && !has_scale)
    refuse("codes of weights without scales");
  const Size rows = size(a, op.transpose_a, 2), columns = size(b, op.transpose_b, 1);
  const Size stored = size(b, op.transpose_b, 2);
  const Size depth = sizes.mul(stored, codes_in_byte(op.b_encoding));
  const DataType dtype =
      has_scale ? quantized_weights_type(op, inputs, depth) : product_type(inputs, true);
  rules::agree(size(a, op.transpose_a, 1), depth, inputs, "inner sizes");
  if (!has_scale) {
    require_zero_point(inputs, 2, rows);
    require_zero_point(inputs, 3, columns);
  }
  const auto leading = [](const Shape& shape) {
    return Shape(shape.span().first(static_cast<size_t>(shape.rank()) - 2));
  };
  Shape shape = broadcast(leading(a), leading(b), sizes, inputs.demands());
  shape.push_back(rows);
  shape.push_back(columns);
  return split_outputs(op.split, dtype, shape, shape.rank() - 1, sizes);
}

Facts infer(const Pool& op, const InferInputs& inputs) {
  SizeTable& sizes = inputs.sizes();
  const Type& x = inputs.type(0);
  const int spatial = spatial_axes(x.shape);
  if (op.kind == PoolKind::kMax ? !rules::is_numeric(x.dtype) : !is_float(x.dtype))
    refuse(fmt::format("pooling of {}", to_string(x.dtype)));
  if (op.with_indices && op.kind != PoolKind::kMax) refuse("indices of a pooling without maxima");
  if (op.kind == PoolKind::kLp && op.p < 1) refuse(fmt::format("an L{} norm", op.p));
  require_spatial(op.kernel, spatial, 1, "kernel");
  require_spatial(op.strides, spatial, 1, "strides");
  require_spatial(op.pads_begin, spatial, 0, "pads_begin");
  require_spatial(op.pads_end, spatial, 0, "pads_end");
  require_spatial(op.dilations, spatial, 1, "dilations");
  Shape shape{x.shape[0], x.shape[1]};
  for (int i = 0; i < spatial; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t begin = op.pads_begin[at], end = op.pads_end[at], stride = op.strides[at];
    const int64_t window = reach(op.kernel[at], op.dilations[at], sizes).value();
    if (begin >= window || end >= window)
      refuse(fmt::format("pads of {} and {} for a window of {}", begin, end, window));
    const Size from_start = sizes.add(x.shape[i + 2], begin);
    const Size padded = sizes.add(from_start, end);
    if (!op.ceil_mode) {
      shape.push_back(windows(padded, window, stride, sizes));
      continue;
    }
    // Rounded up, but a window must start before the padding at the end.
    Size count = windows(sizes.add(padded, stride - 1), window, stride, sizes);
    if (end - window + stride > 0)
      count = rules::at_most(count, sizes.ceil_div(from_start, stride), sizes);
    shape.push_back(count);
  }
  Facts facts{rules::make_fact(x.dtype, shape)};
  if (op.with_indices) facts.push_back(rules::make_fact(DataType::kI64, shape));
  return facts;
}

Facts infer(const Attention& op, const InferInputs& inputs) {
  rules::require_float(inputs, 0);
  const Shape &q = inputs.shape(0), &k = inputs.shape(1), &v = inputs.shape(2);
  for (int i = 0; i < 3; ++i) {
    const bool is_integer = inputs.dtype(i) == DataType::kI8 || inputs.dtype(i) == DataType::kU8;
    const bool is_shorter = is_half(inputs.dtype(i)) || is_integer;
    if (inputs.dtype(0) != DataType::kF32 || i == 0 || !is_shorter)
      rules::require_dtype(inputs, i, inputs.dtype(0));
    if (inputs.shape(i).rank() != 4)
      refuse(fmt::format("input {} has rank {}, not 4", i, inputs.shape(i).rank()));
  }
  const Size batch =
      rules::agree(rules::agree(q[0], k[0], inputs, "batches"), v[0], inputs, "batches");
  const Size groups = rules::agree(k[1], v[1], inputs, "heads of k and v"), heads = q[1];
  if (groups.known() && heads.known() &&
      (groups.value() == 0 ? heads.value() != 0 : heads.value() % groups.value() != 0))
    refuse(fmt::format("{} heads of q for {} of k", heads.value(), groups.value()));
  const auto columns = [&](int i) {
    const Size elements = inputs.shape(i)[3];
    return inputs.dtype(i) == DataType::kU8 ? inputs.sizes().mul(elements, 2) : elements;
  };
  rules::agree(q[3], columns(1), inputs, "inner sizes of q and k");
  const Size keys = rules::agree(k[2], v[2], inputs, "numbers of keys and values");
  if (!op.score.empty()) {
    const DataType scores = accumulator(inputs.dtype(0));
    if (op.score.results().size() != 1 || !is_float(op.score.results()[0].dtype) ||
        accumulator(op.score.results()[0].dtype) != scores)
      refuse(
          fmt::format("a score that is not one result to be accumulated in {}", to_string(scores)));
    const Fact products{{scores, {batch, heads, q[2], keys}, Container::kTensor}, std::nullopt};
    std::vector<InferInput> taken{{&products, nullptr}};
    for (const InferInput& further : inputs.all().subspan(3)) taken.push_back(further);
    with_context([] { return "score"; },
                 [&] {
                   return rules::apply_program(op.score, products.type.shape,
                                               InferInputs(taken, inputs.sizes()));
                 });
  }
  return {rules::make_fact(inputs.dtype(0), {batch, heads, q[2], columns(2)})};
}

Facts infer(const Softmax& op, const InferInputs& inputs) {
  const Type x = rules::apply_map(op.map, inputs, 1).type;
  if (!is_float(x.dtype))
    refuse(fmt::format("input 0 is {}, not a float type", to_string(x.dtype)));
  rules::require_axis(op.axis, x.shape.rank());
  return {rules::make_fact(x.dtype, x.shape)};
}

Facts infer(const Normalize& op, const InferInputs& inputs) {
  rules::require_float(inputs, 0);
  if (op.axes.empty()) refuse("a normalization over no axes");
  for (size_t i = 0; i < op.axes.size(); ++i) {
    rules::require_axis(op.axes[i], inputs.shape(0).rank());
    if (i > 0 && op.axes[i] <= op.axes[i - 1]) refuse("axes are not ascending");
  }
  return {rules::make_fact(inputs.dtype(0), inputs.shape(0))};
}

namespace {

// scale and zero point: one for all, one per index of `axis`, or one per block along it.
void require_scales(const InferInputs& inputs, int64_t axis, int64_t block_size) {
  SizeTable& sizes = inputs.sizes();
  const Shape &x = inputs.shape(0), &scale = inputs.shape(1);
  rules::require_float(inputs, 1);
  if (block_size < 0) refuse(fmt::format("blocks of {}", block_size));
  if (block_size > 0) {
    const int blocked = rules::require_axis(axis, x.rank());
    if (scale.rank() != x.rank())
      refuse(fmt::format("scales of rank {} for blocks of rank {}", scale.rank(), x.rank()));
    for (int i = 0; i < x.rank(); ++i)
      rules::agree(scale[i], i == blocked ? sizes.ceil_div(x[i], block_size) : x[i], sizes,
                   "sizes of scales and blocks");
  } else if (scale.rank() > 1) {
    refuse(fmt::format("scales of rank {}", scale.rank()));
  } else if (scale.rank() == 1 && scale[0] != Size(1)) {
    rules::agree(scale[0], x[rules::require_axis(axis, x.rank())], sizes,
                 "sizes of scales and axis");
  }
  if (!inputs.has(2)) return;
  const Shape& zero = inputs.shape(2);
  if (zero.rank() != scale.rank())
    refuse(fmt::format("zero points of rank {} for scales of rank {}", zero.rank(), scale.rank()));
  for (int i = 0; i < zero.rank(); ++i)
    rules::agree(zero[i], scale[i], sizes, "sizes of zero points and scales");
}

bool is_quantized(DataType dtype) { return is_integer(dtype) && size_of(dtype) <= 2; }

}  // namespace

Facts infer(const Quantize& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (!is_float(x.dtype) && x.dtype != DataType::kI32)
    refuse(fmt::format("quantization of {}", to_string(x.dtype)));
  if (!is_quantized(op.dtype)) refuse(fmt::format("quantization to {}", to_string(op.dtype)));
  require_scales(inputs, op.axis, op.block_size);
  if (inputs.has(2)) rules::require_dtype(inputs, 2, op.dtype);
  return {rules::make_fact(op.dtype, x.shape)};
}

Facts infer(const Dequantize& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  if (!is_quantized(x.dtype) && x.dtype != DataType::kI32)
    refuse(fmt::format("dequantization of {}", to_string(x.dtype)));
  if (op.encoding != WeightEncoding::kIntegers) {
    if (has_integers(op.encoding)) refuse("codes of less than 8 bits");
    rules::require_dtype(inputs, 0, DataType::kU8);
    if (inputs.has(2)) refuse("a zero point of floats");
  }
  require_scales(inputs, op.axis, op.block_size);
  if (inputs.has(2)) rules::require_dtype(inputs, 2, x.dtype);
  return {rules::make_fact(inputs.dtype(1), x.shape)};
}

}  // namespace anneal
