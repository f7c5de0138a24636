// Normalizations: a Normalize layer, or a formula, and Pointwise layers for scale and shift.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"
#include "anneal/importer/ops/window.h"

namespace anneal {
namespace {

DataType real_type(DataType dtype) {
  return dtype == DataType::kF64 ? DataType::kF64 : DataType::kF32;
}

std::vector<int64_t> axes_from(int64_t first, int rank) {
  std::vector<int64_t> axes(static_cast<size_t>(std::max<int64_t>(rank - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

// scale * x + shift, rounded after each operation as ONNX's definition is.
Expression scaled_by(Expressions in) {
  const Expression scaled = in[0] * in[1].cast(in[0].reg.type);
  return in.size() == 3 ? scaled + in[2].cast(in[0].reg.type) : scaled;
}
// kNone: left out.
Outputs scale_and_shift(Node& node, ValueId x, ValueId scale, ValueId shift,
                        std::string_view suffix = "scale") {
  const DataType dtype = node.dtype(0);
  std::vector<ValueId> inputs = {x, scale};
  if (shift != ValueId::kNone) inputs.push_back(shift);
  return pointwise_result(
      node, inputs, dtype, [](Expressions in) { return scaled_by(in); }, suffix);
}

// A vector as it is multiplied by channels, whose number it must have.
ValueId channels(Node& node, ValueId vector, std::string_view suffix) {
  const Shape& x = node.shape(0);
  if (x.rank() < 2 || x[1].is_unknown() || node.graph().value(vector).type().shape.rank() != 1)
    return per_channel(node, vector, x.rank(), suffix);
  std::vector<Size> sizes(static_cast<size_t>(x.rank() - 1), Size(1));
  sizes[0] = x[1];
  return reshape(node, vector, sizes, suffix);
}
ValueId channels(Node& node, int index, std::string_view suffix) {
  return channels(node, node.input(index), suffix);
}

// Whether a product has the shape of x, whatever the sizes are.
bool broadcasts_to_x(Node& node, ValueId factor) {
  const Shape& x = node.shape(0);
  const Shape& shape = node.graph().value(factor).type().shape;
  if (shape.rank() > x.rank()) return false;
  for (int axis = 1; axis <= shape.rank(); ++axis)
    if (const Size size = shape[shape.rank() - axis]; size != Size(1) && size != x[x.rank() - axis])
      return false;
  return true;
}

// As scale_and_shift(), of the shape of x: no factor broadcasts x.
Outputs scale_and_shift_to_x(Node& node, ValueId x, ValueId scale, ValueId shift) {
  if (broadcasts_to_x(node, scale) && (shift == ValueId::kNone || broadcasts_to_x(node, shift)))
    return scale_and_shift(node, x, scale, shift);
  const DataType dtype = node.dtype(0);
  std::vector<ValueId> inputs = {x, scale};
  if (shift != ValueId::kNone) inputs.push_back(shift);
  const ValueId scaled =
      pointwise(node, "scale", inputs, dtype, [](Expressions in) { return scaled_by(in); });
  const Shape& shape = node.shape(0);
  return reshape_result(node, scaled, {shape.begin(), shape.end()}, "has_shape_of_x");
}

// (x - mean) / sqrt(var + epsilon) * scale + bias with mean and var as values, or with everything
// but x folded, in f32, where it is constant.
Outputs batch_normalization(Node& node, ValueId mean, ValueId variance, bool constant_statistics) {
  const DataType dtype = node.dtype(0, kFloats);
  const double epsilon = node.number("epsilon", 1e-5F);
  const DataType real = real_type(dtype);
  const Tensor* constants[4] = {};
  bool all_constant = constant_statistics;
  for (int i = 0; i < 4; ++i) {
    constants[i] = node.constant(i + 1);
    all_constant = all_constant && constants[i] != nullptr;
    node.dtype(i + 1, kFloats);
  }
  if (!all_constant) {
    const auto vector = [&](ValueId value, const char* suffix) {
      return channels(node, value, suffix);
    };
    const ValueId factor =
        pointwise(node, "factor", {channels(node, 1, "scale"), vector(variance, "variance")}, real,
                  [&](Expressions in) {
                    const RegisterType type = register_type(real);
                    return in[0].cast(type) / (in[1].cast(type) + epsilon).apply(Opcode::kSqrt);
                  });
    return pointwise_result(
        node, {node.input(0), vector(mean, "mean"), factor, channels(node, 2, "bias")}, dtype,
        [&](Expressions in) {
          const RegisterType type = register_type(real);
          return (in[0].cast(type) - in[1].cast(type)) * in[2] + in[3].cast(type);
        });
  }
  const auto scale = numbers_of(*constants[0]), bias = numbers_of(*constants[1]);
  const auto means = numbers_of(*constants[2]), variances = numbers_of(*constants[3]);
  const size_t count = scale.size();
  if (bias.size() != count || means.size() != count || variances.size() != count)
    node.invalid("scale, bias, mean and variance of different lengths");
  std::vector<double> factors(count), shifts(count);
  const auto fold = [&]<class T>(T) {
    for (size_t i = 0; i < count; ++i) {
      const T factor = static_cast<T>(scale[i]) /
                       std::sqrt(static_cast<T>(variances[i]) + static_cast<T>(epsilon));
      factors[i] = factor;
      shifts[i] = static_cast<T>(bias[i]) - static_cast<T>(means[i]) * factor;
    }
  };
  real == DataType::kF64 ? fold(double{}) : fold(float{});
  const Dims dims = {static_cast<int64_t>(count)};
  const auto channel_constant = [&](const std::vector<double>& values, const char* suffix) {
    return channels(node, node.constant_value(tensor_of(real, dims, values), suffix),
                    std::string(suffix) + "_per_channel");
  };
  return scale_and_shift(node, node.input(0), channel_constant(factors, "factor"),
                         channel_constant(shifts, "shift"), "");
}

Outputs batch_normalization_inference(Node& node) {
  node.expect_inputs(5, 5);
  node.ignore("momentum");
  node.ignore("consumed_inputs");
  return batch_normalization(node, node.input(3), node.input(4), true);
}

// Test mode has one output, whatever is_test says.
Outputs import_batch_normalization_test_mode(Node& node) {
  if (!node.flag("is_test", false) && node.has_output(1)) node.unsupported("training mode");
  if (!node.flag("spatial", true)) node.unsupported("statistics of each position (spatial=0)");
  return batch_normalization_inference(node);
}
Outputs import_batch_normalization_spatial(Node& node) {
  if (!node.flag("spatial", true)) node.unsupported("statistics of each position (spatial=0)");
  return batch_normalization_inference(node);
}

// Statistics of this batch, over all axes but 1; the second and third output are the running ones.
Outputs batch_normalization_training(Node& node) {
  node.expect_inputs(5, 5);
  const DataType real = real_type(node.dtype(0, kFloats));
  const double momentum = node.number("momentum", 0.9F);
  std::vector<int64_t> axes = axes_from(0, node.rank(0));
  if (axes.size() < 2) node.invalid("at least 2 axes are expected");
  axes.erase(axes.begin() + 1);
  const ValueId over = node.integers_value(axes, "axes");
  const ValueId x = as_type(node, node.input(0), real, "wide");
  const Reduce mean_of{.kind = ReduceKind::kMean, .keepdims = false};
  const ValueId mean = node.layer(mean_of, {x, over}, "batch_mean");
  const ValueId squares = pointwise(
      node, "squares", {x, per_channel(node, mean, node.rank(0), "batch_mean_per_channel")}, real,
      [](Expressions in) { return (in[0] - in[1]) * (in[0] - in[1]); });
  const ValueId variance = node.layer(mean_of, {squares, over}, "batch_variance");
  Outputs outputs = batch_normalization(node, mean, variance, false);
  const auto running = [&](int input, ValueId batch, const char* suffix) {
    return pointwise_result(
        node, {node.input(input), batch}, node.dtype(input, kFloats),
        [&](Expressions in) {
          const Expression old = in[0].cast(in[1].reg.type);
          return old * momentum + in[1] * (1 - momentum);
        },
        suffix, input - 2)[0];
  };
  if (node.output_count() > 1) outputs.push_back(running(3, mean, "running_mean"));
  if (node.output_count() > 2) outputs.push_back(running(4, variance, "running_variance"));
  return outputs;
}

Outputs import_batch_normalization(Node& node) {
  return node.flag("training_mode", false) ? batch_normalization_training(node)
                                           : batch_normalization_inference(node);
}

Outputs import_instance_normalization(Node& node) {
  node.expect_inputs(3, 3);
  node.expect_same_dtype({0, 1, 2});
  node.dtype(0, kFloats);
  node.ignore("consumed_inputs");
  spatial_axes(node);
  const Normalize op{.axes = axes_from(2, node.rank(0)), .epsilon = node.number("epsilon", 1e-5F)};
  const ValueId normal = node.layer(op, {node.input(0)}, "");
  return scale_and_shift(node, normal, channels(node, 1, "scale_per_channel"),
                         channels(node, 2, "bias_per_channel"));
}

// The mean and 1 / standard deviation, for those who ask for them.
void add_statistics(Node& node, const std::vector<int64_t>& axes, double epsilon,
                    Outputs& outputs) {
  if (!node.has_output(1) && !node.has_output(2)) return;
  const DataType real = real_type(node.dtype(0));
  const ValueId over = node.integers_value(axes, "axes");
  const ValueId x = as_type(node, node.input(0), real, "wide");
  const Reduce mean_of{.kind = ReduceKind::kMean};
  const ValueId mean = node.layer(mean_of, {x, over}, "row_mean");
  const auto add = [&](int output, ValueId from, Formula formula, const char* suffix) {
    outputs.push_back(pointwise_result(node, {from}, real, formula, suffix, output)[0]);
  };
  add(
      1, mean, [](Expressions in) { return in[0]; }, "mean");
  if (!node.has_output(2)) return;
  const ValueId squares = pointwise(node, "squares", {x, mean}, real, [](Expressions in) {
    return (in[0] - in[1]) * (in[0] - in[1]);
  });
  const ValueId variance = node.layer(mean_of, {squares, over}, "variance");
  add(
      2, variance, [&](Expressions in) { return 1.0 / (in[0] + epsilon).apply(Opcode::kSqrt); },
      "inverse_deviation");
}

void expect_f32_statistics(Node& node) {
  if (node.integer("stash_type", 1) != 1)
    node.unsupported("statistics in another type than float (stash_type)");
}

Outputs import_layer_normalization(Node& node) {
  node.expect_inputs(2, 3);
  node.expect_same_dtype({0, 1, 2});
  node.dtype(0, kFloats);
  expect_f32_statistics(node);
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  const Normalize op{.axes = axes_from(axis, node.rank(0)),
                     .epsilon = node.number("epsilon", 1e-5F)};
  const ValueId normal = node.layer(op, {node.input(0)}, "");
  Outputs outputs = scale_and_shift_to_x(node, normal, node.input(1), node.optional_input(2));
  add_statistics(node, op.axes, op.epsilon, outputs);
  return outputs;
}

Outputs import_rms_normalization(Node& node) {
  node.expect_inputs(2, 2);
  node.dtype(0, kFloats);
  node.dtype(1, kFloats);
  expect_f32_statistics(node);
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  const Normalize op{.axes = axes_from(axis, node.rank(0)),
                     .epsilon = node.number("epsilon", 1e-5F),
                     .subtract_mean = false};
  const ValueId normal = node.layer(op, {node.input(0)}, "");
  return scale_and_shift_to_x(node, normal, node.input(1), ValueId::kNone);
}

// [N,C,...] as [N,groups,C/groups*...], normalized along the last axis.
struct ChannelGroups {
  ValueId normal;
  std::vector<Size> shape;  // of x
  int64_t count;
};
ChannelGroups normalize_groups(Node& node, ValueId x, int64_t groups) {
  const Shape shape = node.graph().value(x).type().shape;
  if (groups < 1 || (shape[1].known() && shape[1].value() % groups != 0))
    node.invalid(fmt::format("{} groups of the channels", groups));
  SizeTable& sizes = node.sizes();
  const Size rest = sizes.floor_div(product(Shape(shape.span().subspan(1)), sizes), groups);
  const std::vector<Size> whole(shape.begin(), shape.end());
  const ValueId grouped = reshape(node, x, {shape[0], Size(groups), rest}, "groups");
  const Normalize op{.axes = {2}, .epsilon = node.number("epsilon", 1e-5F)};
  return {node.layer(op, {grouped}, ""), whole, groups};
}
ChannelGroups normalize_groups(Node& node) {
  node.expect_inputs(3, 3);
  node.dtype(0, kFloats);
  spatial_axes(node);
  return normalize_groups(node, node.input(0), node.integer("num_groups"));
}

// Opset 18: scale and bias of each group.
Outputs import_group_normalization_per_group(Node& node) {
  const ChannelGroups groups = normalize_groups(node);
  const ValueId scale = per_channel(node, node.input(1), 3, "scale_per_group");
  const ValueId bias = per_channel(node, node.input(2), 3, "bias_per_group");
  const ValueId scaled = pointwise(node, "scale", {groups.normal, scale, bias}, node.dtype(0),
                                   [](Expressions in) { return in[0] * in[1] + in[2]; });
  return reshape_result(node, scaled, groups.shape, "ungrouped");
}

Outputs import_group_normalization(Node& node) {
  expect_f32_statistics(node);
  const ChannelGroups groups = normalize_groups(node);
  const ValueId normal = reshape(node, groups.normal, groups.shape, "ungrouped");
  const int rank = node.rank(0);
  return scale_and_shift(node, normal, per_channel(node, node.input(1), rank, "scale_per_channel"),
                         per_channel(node, node.input(2), rank, "bias_per_channel"));
}

// Groups of channels of x, of the shape of input 0, normalized, scaled and shifted by inputs 1 and
// 2, then SiLU if the node asks for it. In f32.
Outputs microsoft_group_norm(Node& node, ValueId x) {
  const bool is_last = node.flag("channels_last", true);
  const bool is_activated = node.flag("activation", false);
  const DataType dtype = node.dtype(0, kFloats);
  node.dtype(1, kFloats);
  node.expect_same_dtype({1, 2});
  const int rank = spatial_axes(node) + 2;
  if (is_last) x = channels_first(node, x, "channels_first");
  x = as_type(node, x, real_type(dtype), "real");
  const ChannelGroups groups = normalize_groups(node, x, node.integer("groups"));
  const std::vector<ValueId> inputs = {reshape(node, groups.normal, groups.shape, "ungrouped"),
                                       per_channel(node, node.input(1), rank, "gamma_per_channel"),
                                       per_channel(node, node.input(2), rank, "beta_per_channel")};
  const auto formula = [&](Expressions in) {
    const Expression y = scaled_by(in);
    return is_activated ? y * y.apply(Opcode::kSigmoid) : y;
  };
  if (!is_last) return pointwise_result(node, inputs, dtype, formula, "scale");
  return channels_last_result(node, pointwise(node, "scale", inputs, dtype, formula));
}
Outputs import_microsoft_group_norm(Node& node) {
  node.expect_inputs(3, 3);
  return microsoft_group_norm(node, node.input(0));
}

// Groups of x + skip + bias, which is output 1. skip has the shape of x, or of one position.
Outputs import_skip_group_norm(Node& node) {
  node.expect_inputs(4, 5);
  node.expect_same_dtype({0, 3, 4});
  const int rank = spatial_axes(node) + 2;
  const bool is_last = node.flag("channels_last", true);
  std::vector<ValueId> terms = {node.input(0), node.input(3)};
  if (node.rank(3) == 2) {
    std::vector<Size> shape(static_cast<size_t>(rank), Size(1));
    shape[0] = node.shape(3)[0];
    shape[is_last ? shape.size() - 1 : 1] = node.shape(3)[1];
    terms[1] = reshape(node, node.input(3), shape, "skip");
  }
  if (!broadcasts_to_x(node, terms[1]))
    node.unsupported("a skip that is not known to have the shape of x");
  if (node.has_input(4))
    terms.push_back(per_channel(node, node.input(4), is_last ? 2 : rank, "bias_per_channel"));
  const auto sum = [](Expressions in) {
    return in.size() == 3 ? in[0] + in[1] + in[2] : in[0] + in[1];
  };
  const ValueId x = pointwise_result(node, terms, node.dtype(0, kFloats), sum, "sum", 1)[0];
  return {microsoft_group_norm(node, x)[0], x};
}

// ONNX adds 1e-9 to the deviation; under the root its square does the same.
Outputs import_mean_variance_normalization(Node& node) {
  node.expect_inputs(1, 1);
  node.dtype(0, kFloats);
  const auto axes = node.find_integers("axes").value_or(std::vector<int64_t>{0, 2, 3});
  return node.result(Normalize{.axes = node.resolve_axes(axes, node.rank(0)), .epsilon = 1e-18F},
                     {node.input(0)});
}

// x / (sum |x|^p)^(1/p) along an axis, 0 where all are 0.
Outputs import_lp_normalization(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFloats);
  const DataType real = real_type(dtype);
  const int64_t p = node.integer("p", 2);
  if (p != 1 && p != 2) node.invalid(fmt::format("attribute \"p\" is {}", p));
  const int64_t axis = node.resolve_axis(node.integer("axis", -1), node.rank(0));
  const ValueId terms = pointwise(node, "terms", {node.input(0)}, real, [&](Expressions in) {
    return p == 1 ? in[0].apply(Opcode::kAbs) : in[0] * in[0];
  });
  const ValueId sum = node.layer(Reduce{}, {terms, node.integers_value({axis}, "axes")}, "sum");
  return pointwise_result(node, {node.input(0), sum}, dtype, [&](Expressions in) {
    const Expression norm = p == 1 ? in[1] : in[1].apply(Opcode::kSqrt);
    return select(norm == 0, norm.number(0), in[0] / norm);
  });
}

// x / (bias + alpha / size * sum of squares of `size` channels around)^beta. The sum is an average
// over padded channels, times size: channels become the spatial axis of a pool.
Outputs import_lrn(Node& node) {
  node.expect_inputs(1, 1);
  const DataType dtype = node.dtype(0, kFloats);
  const DataType real = real_type(dtype);
  const double alpha = node.number("alpha", 1e-4F), beta = node.number("beta", 0.75F);
  const double bias = node.number("bias", 1);
  const int64_t size = node.integer("size");
  const Shape shape = node.shape(0);
  if (size < 1 || size > 1 << 20) node.invalid(fmt::format("attribute \"size\" is {}", size));
  if (shape.rank() < 2) node.invalid("at least 2 axes are expected");
  const Size rest = product(Shape(shape.span().subspan(2)), node.sizes());
  const ValueId squares = pointwise(node, "squares", {node.input(0)}, real,
                                    [](Expressions in) { return in[0] * in[0]; });
  // Positions become the channels of the pool, so that they lie beside each other.
  const ValueId lines =
      node.layer(Transpose{{0, 2, 1}},
                 {reshape(node, squares, {shape[0], shape[1], rest}, "positions_of_channels")},
                 "channels_of_positions");
  const Pool average{.kind = PoolKind::kAverage,
                     .kernel = {size},
                     .strides = {1},
                     .pads_begin = {(size - 1) / 2},
                     .pads_end = {size / 2},
                     .dilations = {1},
                     .count_include_pad = true};
  const ValueId pooled =
      node.layer(Transpose{{0, 2, 1}}, {node.layer(average, {lines}, "average")}, "pooled");
  const ValueId averages = reshape(node, pooled, {shape.begin(), shape.end()}, "averages");
  return pointwise_result(node, {node.input(0), averages}, dtype, [&](Expressions in) {
    const Expression base = in[1] * alpha + bias;
    return in[0] / base.apply(Opcode::kPow, base.number(beta));
  });
}

constexpr OpRow kNormRows[] = {
    {"", "BatchNormalization", 1, 6, import_batch_normalization_test_mode},
    {"", "BatchNormalization", 7, 8, import_batch_normalization_spatial},
    {"", "BatchNormalization", 9, 13, batch_normalization_inference},
    {"", "BatchNormalization", 14, kLatest, import_batch_normalization},
    {"", "GroupNormalization", 18, 20, import_group_normalization_per_group},
    {"", "GroupNormalization", 21, kLatest, import_group_normalization},
    {"", "InstanceNormalization", 1, kLatest, import_instance_normalization},
    {"", "LRN", 1, kLatest, import_lrn},
    {"", "LayerNormalization", 17, kLatest, import_layer_normalization},
    {"", "LpNormalization", 1, kLatest, import_lp_normalization},
    {"", "MeanVarianceNormalization", 9, kLatest, import_mean_variance_normalization},
    {"", "RMSNormalization", 23, kLatest, import_rms_normalization},
    {"", "SimplifiedLayerNormalization", 1, kLatest, import_rms_normalization},
    {kMicrosoft, "GroupNorm", 1, kLatest, import_microsoft_group_norm},
    {kMicrosoft, "SkipGroupNorm", 1, kLatest, import_skip_group_norm},
};

}  // namespace

std::span<const OpRow> norm_rows() { return kNormRows; }

}  // namespace anneal
