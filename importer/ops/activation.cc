// Activation functions: one Pointwise layer per node, computed in f32 (f64 for f64).
#include <cmath>
#include <numbers>

#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

Expression sigmoid(Expression x) { return x.apply(Opcode::kSigmoid); }
Expression expm1(Expression x) { return x.apply(Opcode::kExpm1); }
Expression tanh(Expression x) { return x.apply(Opcode::kTanh); }
Expression relu(Expression x) { return max(x, x.number(0)); }
Expression hard_sigmoid(Expression x, double alpha, double beta) {
  return max(x.number(0), min(x.number(1), x * alpha + beta));
}

Outputs activation(Node& node, Formula formula, TypeSet types = kFloats) {
  node.expect_inputs(1, 1);
  node.ignore("consumed_inputs");
  return pointwise_result(node, {node.input(0)}, node.dtype(0, types), formula);
}

Outputs import_relu(Node& node) {
  return activation(
      node, [](Expressions in) { return relu(in[0]); }, kNumbers);
}

Outputs import_sigmoid(Node& node) {
  return activation(node, [](Expressions in) { return sigmoid(in[0]); });
}

Outputs import_leaky_relu(Node& node) {
  const double alpha = node.number("alpha", 0.01F);
  return activation(node, [&](Expressions in) {
    const Expression x = in[0];
    return select(x < 0, x * alpha, x);
  });
}

Outputs import_elu(Node& node) {
  const double alpha = node.number("alpha", 1);
  return activation(node, [&](Expressions in) {
    const Expression x = in[0];
    return select(x < 0, expm1(x) * alpha, x);
  });
}

Outputs import_celu(Node& node) {
  const double alpha = node.number("alpha", 1);
  return activation(node, [&](Expressions in) {
    const Expression x = in[0];
    return relu(x) + min(x.number(0), expm1(x / alpha) * alpha);
  });
}

Outputs selu(Node& node, float alpha, float gamma) {
  const double a = node.number("alpha", alpha);
  const double g = node.number("gamma", gamma);
  return activation(node, [&](Expressions in) {
    const Expression x = in[0];
    return select(x <= 0, expm1(x) * a, x) * g;
  });
}
Outputs import_selu_rounded(Node& node) { return selu(node, 1.6732F, 1.0507F); }
Outputs import_selu(Node& node) {
  return selu(node, 1.67326319217681884765625F, 1.05070102214813232421875F);
}

Outputs import_hard_sigmoid(Node& node) {
  const double alpha = node.number("alpha", 0.2F);
  const double beta = node.number("beta", 0.5F);
  return activation(node, [&](Expressions in) { return hard_sigmoid(in[0], alpha, beta); });
}

Outputs import_hard_swish(Node& node) {
  return activation(node,
                    [](Expressions in) { return in[0] * hard_sigmoid(in[0], 1.0F / 6, 0.5); });
}

Outputs import_softplus(Node& node) {
  return activation(node, [](Expressions in) { return softplus(in[0]); });
}

Outputs import_softsign(Node& node) {
  return activation(node, [](Expressions in) { return in[0] / (in[0].apply(Opcode::kAbs) + 1.0); });
}

Outputs import_mish(Node& node) {
  return activation(node, [](Expressions in) { return in[0] * tanh(softplus(in[0])); });
}

Outputs import_swish(Node& node) {
  const double alpha = node.number("alpha", 1);
  return activation(node, [&](Expressions in) { return in[0] * sigmoid(in[0] * alpha); });
}

Outputs import_swiglu(Node& node) {
  node.expect_inputs(2, 2);
  node.expect_same_dtype({0, 1});
  const DataType dtype = node.dtype(0, kFloats);
  const double alpha = node.number("alpha", 1);
  if (node.rank(0) != node.rank(1)) node.invalid("gate and value of different ranks");
  return pointwise_result(node, {node.input(0), node.input(1)}, dtype,
                          [&](Expressions in) { return in[0] * sigmoid(in[0] * alpha) * in[1]; });
}

Outputs import_quick_gelu(Node& node) {
  const double alpha = node.number("alpha", 1.702F);
  return activation(node, [&](Expressions in) { return in[0] * sigmoid(in[0] * alpha); });
}

// z * sigmoid(z) of z = scale * x, rounded after each step.
Outputs import_scaled_silu(Node& node) {
  node.expect_inputs(1, 2);
  const DataType dtype = node.dtype(0, kFloats);
  const double alpha = node.number("alpha", 1);
  std::vector<ValueId> inputs = {node.input(0)};
  if (node.has_input(1)) {
    node.dtype(1, kFloats);
    if (node.rank(1) != 0) node.invalid("the scale is no scalar");
    inputs.push_back(node.input(1));
  }
  return pointwise_result(node, inputs, dtype, [&](Expressions in) {
    const Expression product = in.size() == 2 ? in[0] * in[1].cast(in[0].reg.type) : in[0] * alpha;
    const Expression z = product.cast_to(dtype);
    return z * sigmoid(z).cast_to(dtype);
  });
}

Outputs import_gelu(Node& node) {
  const bool approximate = node.choice("approximate", {"none", "tanh"}) == 1;
  return activation(
      node, [&](Expressions in) { return approximate ? tanh_gelu(in[0]) : erf_gelu(in[0]); });
}

// The formula applied to input 0 plus input 1, which may be absent.
Outputs biased_gelu(Node& node, Expression (*formula)(Expression)) {
  node.expect_inputs(1, 2);
  node.expect_same_dtype({0, 1});
  std::vector<ValueId> inputs = {node.input(0)};
  if (node.has_input(1)) inputs.push_back(node.input(1));
  return pointwise_result(node, inputs, node.dtype(0, kFloats), [&](Expressions in) {
    return formula(in.size() == 2 ? in[0] + in[1] : in[0]);
  });
}
Outputs import_bias_gelu(Node& node) { return biased_gelu(node, erf_gelu); }
Outputs import_fast_gelu(Node& node) { return biased_gelu(node, tanh_gelu); }

Outputs import_thresholded_relu(Node& node) {
  const double alpha = node.number("alpha", 1);
  return activation(node, [&](Expressions in) {
    const Expression x = in[0];
    return select(x.number(alpha) < x, x, x.number(0));
  });
}

Outputs import_shrink(Node& node) {
  const double lambda = node.number("lambd", 0.5F);
  const double bias = node.number("bias", 0);
  node.expect_inputs(1, 1);
  return pointwise_result(node, {node.input(0)}, node.dtype(0, kNumbers), [&](Expressions in) {
    // Both constants are fractions, whatever x is.
    const bool wide = node.dtype(0) == DataType::kF64 || size_of(node.dtype(0)) == 8;
    const Expression x = in[0].cast(wide ? RegisterType::kF64 : RegisterType::kF32);
    const Expression shrunk =
        select(x < -lambda, x + bias, select(x.number(lambda) < x, x - bias, x.number(0)));
    return shrunk.cast(in[0].reg.type);
  });
}

Outputs prelu(Node& node, ValueId slope) {
  node.expect_same_dtype({0, 1});
  return pointwise_result(node, {node.input(0), slope}, node.dtype(0, kNumbers),
                          [](Expressions in) { return select(in[0] < 0, in[0] * in[1], in[0]); });
}

// Before opset 7 a slope of more than one element belongs to axis 1.
Outputs import_prelu_per_channel(Node& node) {
  node.expect_inputs(2, 2);
  node.ignore("consumed_inputs");
  const bool vector = node.rank(1) == 1 && !(node.shape(1)[0] == Size(1));
  return prelu(node,
               vector ? per_channel(node, node.input(1), node.rank(0), "slope") : node.input(1));
}

Outputs import_prelu(Node& node) {
  node.expect_inputs(2, 2);
  return prelu(node, node.input(1));
}

constexpr OpRow kActivationRows[] = {
    {"", "Celu", 12, kLatest, import_celu},
    {"", "Elu", 1, kLatest, import_elu},
    {"", "Gelu", 20, kLatest, import_gelu},
    {"", "HardSigmoid", 1, kLatest, import_hard_sigmoid},
    {"", "HardSwish", 14, kLatest, import_hard_swish},
    {"", "LeakyRelu", 1, kLatest, import_leaky_relu},
    {"", "Mish", 18, kLatest, import_mish},
    {"", "PRelu", 1, 6, import_prelu_per_channel},
    {"", "PRelu", 7, kLatest, import_prelu},
    {"", "Relu", 1, kLatest, import_relu},
    {"", "Selu", 1, 5, import_selu_rounded},
    {"", "Selu", 6, kLatest, import_selu},
    {"", "Shrink", 9, kLatest, import_shrink},
    {"", "Sigmoid", 1, kLatest, import_sigmoid},
    {"", "Softplus", 1, kLatest, import_softplus},
    {"", "Softsign", 1, kLatest, import_softsign},
    {"", "SwiGLU", 28, kLatest, import_swiglu},
    {"", "Swish", 24, kLatest, import_swish},
    {"", "ThresholdedRelu", 1, kLatest, import_thresholded_relu},
    {kMicrosoft, "BiasGelu", 1, kLatest, import_bias_gelu},
    {kMicrosoft, "FastGelu", 1, kLatest, import_fast_gelu},
    {kMicrosoft, "Gelu", 1, kLatest, import_gelu},
    {kMicrosoft, "QuickGelu", 1, kLatest, import_quick_gelu},
    {kMicrosoft, "ScaledSiLU", 1, kLatest, import_scaled_silu},
};

}  // namespace

std::span<const OpRow> activation_rows() { return kActivationRows; }

}  // namespace anneal
