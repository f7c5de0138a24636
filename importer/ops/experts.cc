// MoE, QMoE and MoEGroupRouter of com.microsoft: a mixture of experts. Each token goes through k of
// E networks of two products, and its result is the sum of theirs, weighted by the router.
//
// Each expert gets the rows of its tokens alone, whose number a run finds: a few small steps for an
// expert without tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/block_weights.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// Element i of axis 0, in the tensor's memory.
Tensor part_of(const Tensor& tensor, int64_t i) {
  Dims dims;
  for (int axis = 1; axis < tensor.dims().rank(); ++axis) dims.push_back(tensor.dims()[axis]);
  const auto owner = std::make_shared<const Tensor>(tensor);
  const size_t bytes = tensor.bytes().size() / static_cast<size_t>(tensor.dims()[0]);
  return {tensor.dtype(), dims, owner,
          owner->bytes().subspan(static_cast<size_t>(i) * bytes, bytes)};
}

// The inputs of one of the products of all experts; negative: there is none.
struct ProductInputs {
  int weights = -1, scales = -1, bias = -1, zeros = -1;
};

class Experts {
 public:
  Experts(Node& node, bool is_quantized) : node_(node), is_quantized_(is_quantized) {}

  Outputs import() {
    if (is_quantized_) {
      node_.expect_inputs(6, 20);
      first_ = {2, 3, 4, 11}, second_ = {5, 6, 7, 12}, third_ = {8, 9, 10, 13};
      if (node_.has_input(kRouterWeights)) node_.unsupported("router_weights");
      for (int input = kRouterWeights + 1; input < node_.input_count(); ++input)
        if (node_.has_input(input)) node_.unsupported("scales of FP4 or FP8");
    } else {
      node_.expect_inputs(5, 8);
      first_ = {2, -1, 3, -1}, second_ = {4, -1, 5, -1}, third_ = {6, -1, 7, -1};
    }
    dtype_ = node_.dtype(kX, kFloats);
    node_.expect_same_dtype({kX, kRouter});
    read_attributes();
    const Shape shape = node_.shape(kX);
    if (shape.rank() != 2 && shape.rank() != 3)
      node_.invalid(fmt::format("input 0 has {} axes, 2 or 3 expected", shape.rank()));
    if (node_.rank(kRouter) != 2 || !node_.shape(kRouter)[1].known())
      node_.unsupported(
          "router_probs that is not [tokens, experts] with a known number of experts");
    experts_ = node_.shape(kRouter)[1].value();
    if (experts_ > kMostExperts) node_.unsupported(fmt::format("{} experts", experts_));
    if (k_ < 1 || k_ > experts_) node_.invalid(fmt::format("k = {} of {} experts", k_, experts_));
    const Size width = shape[shape.rank() - 1], tokens = node_.shape(kRouter)[0];
    check_operands(width);
    tokens_ = reshape(node_, node_.input(kX), {tokens, width}, "tokens");
    route(tokens);
    ValueId sum = zeros({tokens, width}, DataType::kF32, "no_experts");
    for (int64_t expert = 0; expert < experts_; ++expert) sum = add(sum, expert);
    const std::vector<Size> sizes(shape.begin(), shape.end());
    const ValueId whole = reshape(node_, sum, sizes, "all_tokens");
    return pointwise_result(node_, {whole}, dtype_, [](Expressions in) { return in[0]; });
  }

 private:
  static constexpr int64_t kMostExperts = 1 << 12;
  enum Input { kX, kRouter, kRouterWeights = 14 };
  enum class Activation { kRelu, kGelu, kSilu, kSwiglu, kIdentity };
  // Where a gate and the numbers that it multiplies are.
  enum class Gates { kTwoProducts, kInterleaved, kHalves };

  void read_attributes() {
    k_ = node_.integer("k", 1);
    normalizes_ = node_.flag("normalize_routing_weights", false);
    if (node_.flag("use_sparse_mixer", false)) node_.unsupported("use_sparse_mixer");
    activation_ = static_cast<Activation>(
        node_.choice("activation_type", {"relu", "gelu", "silu", "swiglu", "identity"}));
    alpha_ = node_.number("activation_alpha", 1);
    beta_ = node_.number("activation_beta", 0);
    limit_ = node_.number("swiglu_limit", std::numeric_limits<float>::infinity());
    const int64_t fusion = node_.integer("swiglu_fusion", 0);
    if (fusion < 0 || fusion > 2) node_.invalid(fmt::format("swiglu_fusion = {}", fusion));
    gates_ = static_cast<Gates>(fusion);
    if (node_.flag("swiglu_limit_after_activation", false))
      node_.unsupported("swiglu_limit_after_activation");
    const bool has_third = node_.has_input(third_.weights);
    const bool wants_third = activation_ == Activation::kSwiglu && gates_ == Gates::kTwoProducts;
    if (has_third != wants_third)
      node_.invalid("fc3_experts_weights do not fit activation_type and swiglu_fusion");
    if (is_quantized_) read_formats();
  }

  // Weights are [experts, rows, columns], codes of which some share a byte, and a bias has a number
  // for each row.
  void check_operands(Size width) const {
    const bool has_halves = activation_ == Activation::kSwiglu && gates_ != Gates::kTwoProducts;
    const int64_t inner = constant(second_.weights, 3, "fc2_experts_weights").dims()[2] *
                          (is_quantized_ ? 8 / second_bits_ : 1);
    const auto check = [&](const ProductInputs& inputs, std::string_view name, Size rows,
                           Size columns, int64_t bits) {
      if (!node_.has_input(inputs.weights)) return;
      const Dims& dims = constant(inputs.weights, 3, name).dims();
      const int64_t given = dims[2] * (is_quantized_ ? 8 / bits : 1);
      if ((rows.known() && dims[1] != rows.value()) ||
          (columns.known() && given != columns.value()))
        node_.invalid(fmt::format("{} of {}", name, to_string(dims)));
      if (!node_.has_input(inputs.bias)) return;
      node_.expect_same_dtype({kX, inputs.bias});
      if (constant(inputs.bias, 2, "biases").dims()[1] != dims[1])
        node_.invalid(fmt::format("the biases of {} are not one for each row", name));
    };
    check(first_, "fc1_experts_weights", has_halves ? 2 * inner : inner, width, first_bits_);
    check(second_, "fc2_experts_weights", width, inner, second_bits_);
    check(third_, "fc3_experts_weights", inner, width, third_bits_);
    if (is_quantized_) return;
    node_.expect_same_dtype({kX, first_.weights, second_.weights});
    if (node_.has_input(third_.weights)) node_.expect_same_dtype({kX, third_.weights});
  }

  void read_formats() {
    if (const std::string type = node_.text("quant_type", "int"); type != "int")
      node_.unsupported(fmt::format("quant_type \"{}\"", type));
    // -1, the default, is the layout of the execution provider: on the CPU that of 0.
    if (node_.integer("weights_prepacked", -1) == 1)
      node_.unsupported("weights in the layout of a GPU (weights_prepacked)");
    block_ = node_.integer("block_size", 0);
    may_round_ = node_.integer("accuracy_level", 0) == 4;
    const int64_t bits = node_.integer("expert_weight_bits", 4);
    first_bits_ = node_.integer("fc1_expert_weight_bits", bits);
    second_bits_ = node_.integer("fc2_expert_weight_bits", bits);
    third_bits_ = node_.integer("fc3_expert_weight_bits", bits);
    for (const int64_t each : {first_bits_, second_bits_, third_bits_})
      if (each != 2 && each != 4 && each != 8)
        node_.unsupported(fmt::format("weights of {} bits", each));
  }

  ValueId zeros(const std::vector<Size>& shape, DataType dtype, const std::string& name) {
    const ValueId zero = node_.constant_value(tensor_of(dtype, {}, {0}), name + "/zero");
    return expanded(node_, zero, shape, name);
  }

  // routing_: f32[experts, tokens], 0 where an expert does not get a token.
  void route(Size tokens) {
    const ValueId logits = as_type(node_, node_.input(kRouter), DataType::kF32, "logits");
    const ValueId shares = node_.layer(Softmax{.axis = 1}, {logits}, "shares");
    const std::vector<ValueId> best =
        node_.layers(TopK{.axis = 1}, {shares, node_.integers_value({k_}, "k")}, "best");
    ValueId weights = best[0];
    if (normalizes_) {
      const ValueId sum = node_.layer(
          Reduce{}, {weights, node_.integers_value({1}, "axis_of_experts")}, "sum_of_best");
      weights = pointwise(node_, "weights", {weights, sum}, DataType::kF32,
                          [](Expressions in) { return in[0] / in[1]; });
    }
    const ValueId none = zeros({tokens, experts_}, DataType::kF32, "no_tokens");
    const ValueId by_token =
        node_.layer(ScatterElements{.axis = 1}, {none, best[1], weights}, "by_token");
    routing_ = node_.layer(Transpose{{1, 0}}, {by_token}, "by_expert");
  }

  // sum[tokens, width] and the weighted results of an expert.
  ValueId add(ValueId sum, int64_t expert) {
    const std::string name = fmt::format("expert{}", expert);
    const ValueId index = node_.integers_value({expert}, name + "/index");
    const ValueId share = reshape(node_, node_.layer(Gather{}, {routing_, index}, name + "/share"),
                                  {node_.shape(kRouter)[0]}, name + "/shares");
    const ValueId found = node_.layer(NonZero{}, {share}, name + "/found");
    const ValueId rows =
        node_.layer(Reshape{}, {found, node_.integers_value({-1}, name + "/list")}, name + "/rows");
    const ValueId x = node_.layer(Gather{}, {tokens_, rows}, name + "/tokens");
    const ValueId hidden = activated(x, expert, name);
    const ValueId y = expert_product(hidden, second_, second_bits_, expert, name + "/fc2");
    const ValueId own = node_.layer(Gather{}, {share, rows}, name + "/weights");
    const ValueId column =
        node_.layer(Reshape{}, {own, node_.integers_value({-1, 1}, name + "/column")},
                    name + "/weights_of_rows");
    const ValueId weighted =
        pointwise(node_, name + "/weighted", {y, column}, DataType::kF32,
                  [](Expressions in) { return in[0].cast(RegisterType::kF32) * in[1]; });
    const ValueId places = node_.layer(
        Reshape{}, {rows, node_.integers_value({-1, 1}, name + "/places_shape")}, name + "/places");
    return node_.layer(ScatterND{.reduction = ScatterReduction::kAdd}, {sum, places, weighted},
                       name + "/sum");
  }

  ValueId activated(ValueId x, int64_t expert, const std::string& name) {
    const ValueId h = expert_product(x, first_, first_bits_, expert, name + "/fc1");
    if (activation_ == Activation::kSwiglu) return gated(x, h, expert, name);
    return pointwise(node_, name + "/activated", {h}, dtype_, [&](Expressions in) {
      const Expression v = in[0];
      switch (activation_) {
        case Activation::kRelu:
          return max(v, v.number(0));
        case Activation::kSilu:
          return v * v.apply(Opcode::kSigmoid);
        case Activation::kGelu:
          return tanh_gelu(v);
        default:
          return v;
      }
    });
  }

  // G * sigmoid(alpha * G) * (L + beta), where G = min(gate, limit), and L is limited on both
  // sides.
  ValueId gated(ValueId x, ValueId h, int64_t expert, const std::string& name) {
    ValueId gate = h, linear = ValueId::kNone;
    if (gates_ == Gates::kTwoProducts) {
      linear = expert_product(x, third_, third_bits_, expert, name + "/fc3");
    } else {
      const Size columns = shape_of(node_, h)[1];
      if (!columns.known() || columns.value() % 2 != 0)
        node_.invalid("fc1_experts_weights have no even number of rows");
      const bool halves = gates_ == Gates::kHalves;
      const int64_t half = columns.value() / 2;
      gate = columns_of(h, 0, halves ? half : columns.value(), halves ? 1 : 2, name + "/gate");
      linear = columns_of(h, halves ? half : 1, columns.value(), halves ? 1 : 2, name + "/linear");
    }
    return pointwise(node_, name + "/gated", {gate, linear}, dtype_, [&](Expressions in) {
      Expression g = in[0], l = in[1];
      if (std::isfinite(limit_)) {
        g = min(g, g.number(limit_));
        l = max(min(l, l.number(limit_)), l.number(-limit_));
      }
      return g * (g * double{alpha_}).apply(Opcode::kSigmoid) * (l + double{beta_});
    });
  }

  ValueId columns_of(ValueId x, int64_t begin, int64_t end, int64_t step, const std::string& name) {
    return node_.layer(
        Slice{},
        {x, node_.integers_value({begin}, name + "/start"),
         node_.integers_value({end}, name + "/end"), node_.integers_value({1}, name + "/axis"),
         node_.integers_value({step}, name + "/step")},
        name);
  }

  const Tensor& constant(int input, int rank, std::string_view what) const {
    const Tensor* tensor = node_.constant(input);
    if (!tensor) node_.unsupported(fmt::format("{} that are not constant", what));
    if (tensor->dims().rank() != rank || tensor->dims()[0] != experts_)
      node_.invalid(
          fmt::format("{} of {} for {} experts", what, to_string(tensor->dims()), experts_));
    if (tensor->count() == 0) node_.invalid(fmt::format("{} without elements", what));
    return *tensor;
  }

  // x times the transposed weights of an expert, and its bias.
  ValueId expert_product(ValueId x, const ProductInputs& inputs, int64_t bits, int64_t expert,
                         const std::string& name) {
    const Tensor weights = part_of(constant(inputs.weights, 3, "weights"), expert);
    ProductLayer product{MatMul{.transpose_b = true}, {x}};
    if (is_quantized_)
      product = quantized(x, weights, inputs, bits, expert, name);
    else
      product.inputs.push_back(node_.constant_value(weights, name + "/weights"));
    const ValueId y = node_.layer(product.op, product.inputs, name);
    if (!node_.has_input(inputs.bias)) return y;
    const ValueId bias =
        node_.constant_value(part_of(constant(inputs.bias, 2, "biases"), expert), name + "/bias");
    return pointwise(node_, name + "/biased", {y, bias}, dtype_,
                     [](Expressions in) { return in[0] + in[1]; });
  }

  ProductLayer quantized(ValueId x, const Tensor& codes, const ProductInputs& inputs, int64_t bits,
                         int64_t expert, const std::string& name) {
    if (codes.dtype() != DataType::kU8 || node_.narrow_type(inputs.weights) != 0)
      node_.invalid("quantized weights that are not uint8");
    const int64_t columns = codes.dims()[0], inner = codes.dims()[1] * 8 / bits;
    const int64_t block = block_ > 0 ? block_ : inner;
    if (block < 1 || block > inner || inner % block != 0 || block * bits % 8 != 0)
      node_.unsupported(fmt::format("blocks of {} in rows of {}", block, inner));
    const int64_t blocks = inner / block;
    const int rank = block_ > 0 ? 3 : 2;
    if (!node_.has_input(inputs.scales)) node_.invalid("quantized weights without scales");
    const Tensor scales = part_of(constant(inputs.scales, rank, "scales"), expert);
    node_.dtype(inputs.scales, kFloats);
    if (scales.dims()[0] != columns || scales.count() != columns * blocks)
      node_.invalid("scales are not one for each block");
    BlockWeights weights{.codes = codes, .bits = bits, .block = block};
    weights.scales = converted(reshaped(scales, {columns, blocks}), name + "/scales");
    if (node_.has_input(inputs.zeros))
      weights.zeros = zero_points(part_of(constant(inputs.zeros, rank, "zero points"), expert),
                                  columns, blocks, bits, name + "/zero_points");
    return block_product(node_, x, weights, may_round_, name + "/weights");
  }

  // Of columns without blocks, zero points are one row of codes; else each column has a row.
  ValueId zero_points(const Tensor& packed, int64_t columns, int64_t blocks, int64_t bits,
                      const std::string& name) {
    const Dims dims = block_ > 0 ? Dims{columns, blocks} : Dims{1, columns};
    if (packed.dtype() != DataType::kU8 || packed.count() != dims[0] * bytes_of_row(dims[1], bits))
      node_.invalid("zero points are not one for each block");
    return node_.constant_value(reshaped(unpacked_rows(packed, dims, bits), {columns, blocks}),
                                name);
  }

  ValueId converted(const Tensor& scales, const std::string& name) {
    const ValueId value = node_.constant_value(scales, name);
    if (scales.dtype() == dtype_) return value;
    return pointwise(node_, name + "/converted", {value}, dtype_,
                     [](Expressions in) { return in[0]; });
  }

  Node& node_;
  const bool is_quantized_;
  DataType dtype_ = DataType::kF32;
  ProductInputs first_, second_, third_;
  int64_t experts_ = 0, k_ = 1, block_ = 0;
  int64_t first_bits_ = 4, second_bits_ = 4, third_bits_ = 4;
  bool normalizes_ = false, may_round_ = false;
  Activation activation_ = Activation::kRelu;
  Gates gates_ = Gates::kTwoProducts;
  float alpha_ = 1, beta_ = 0, limit_ = 0;
  ValueId tokens_ = ValueId::kNone, routing_ = ValueId::kNone;
};

Outputs import_moe(Node& node) { return Experts(node, false).import(); }
Outputs import_quantized_moe(Node& node) { return Experts(node, true).import(); }

// 1 at the k largest numbers of each row of x[rows,count], else 0.
ValueId mark_largest(Node& node, ValueId x, int64_t k, const std::string& name) {
  const std::vector<ValueId> best =
      node.layers(TopK{.axis = 1}, {x, node.integers_value({k}, name + "/k")}, name + "/best");
  const auto mark = [&](ValueId of, double number, const char* suffix) {
    return pointwise(node, name + suffix, {of}, DataType::kF32, [&](Expressions in) {
      return Expression{in[0].builder, in[0].builder->constant(RegisterType::kF32, number)};
    });
  };
  return node.layer(ScatterElements{.axis = 1},
                    {mark(x, 0, "/none"), best[1], mark(best[1], 1, "/ones")}, name);
}

// Router of groups of experts: of the groups whose experts have the largest sums of scores, the
// k experts with the largest scores get the logarithm of their share. Or the scores and shares as
// outputs 1 and 2.
Outputs import_group_router(Node& node) {
  node.expect_inputs(2, 3);
  if (node.has_input(2)) node.unsupported("scores that are projected (projection_weight)");
  const DataType dtype = node.dtype(0, kFloats);
  node.dtype(1, {DataType::kF32});
  const Shape& shape = node.shape(0);
  const Size count = shape.rank() == 0 ? Size::unknown() : shape[shape.rank() - 1];
  if (!count.known()) node.unsupported("a number of experts known only at run time");
  const int64_t experts = count.value();
  if (node.rank(1) != 1 || (node.shape(1)[0].known() && node.shape(1)[0] != count))
    node.invalid("expert_bias has not one number for each expert");
  const int64_t k = node.integer("top_k"), groups = node.integer("n_group", 1);
  const int64_t open = node.integer("topk_group", 1), summed = node.integer("group_topk", 2);
  const double hidden = node.number("router_sentinel", -10000);
  if (groups < 1 || experts < 1 || experts % groups != 0 || open < 1 || open > groups ||
      summed < 1 || k < 1 || k > experts / groups * open)
    node.invalid(fmt::format("{} of {} experts, from {} of {} groups", k, experts, open, groups));
  const Size tokens =
      product(Shape(shape.span().first(static_cast<size_t>(shape.rank() - 1))), node.sizes());
  const ValueId logits = reshape(node, node.input(0), {tokens, experts}, "tokens");
  const auto share = [](Expressions in) {
    return in[0].cast(RegisterType::kF32).apply(Opcode::kSigmoid);
  };
  const auto score = [&](Expressions in) { return share(in) + in[1]; };
  const std::vector<ValueId> biased = {logits, node.input(1)};
  if (node.has_output(1) || node.has_output(2)) {
    if (groups != 1 || node.has_output(0)) node.invalid("scores as outputs of a router of groups");
    return {ValueId::kNone, pointwise_result(node, biased, DataType::kF32, score, "scores", 1)[0],
            pointwise_result(node, {logits}, DataType::kF32, share, "shares", 2)[0]};
  }
  ValueId scores = pointwise(node, "scores", biased, DataType::kF32, score);
  if (groups > 1) {
    const int64_t size = experts / groups;
    const ValueId grouped = reshape(node, scores, {tokens, groups, size}, "groups");
    const ValueId best = node.layers(
        TopK{.axis = 2}, {grouped, node.integers_value({std::min(summed, size)}, "summed")},
        "best_of_groups")[0];
    const ValueId sums = node.layer(Reduce{.keepdims = false},
                                    {best, node.integers_value({2}, "axis_of_group")}, "sums");
    const ValueId mark = reshape(node, mark_largest(node, sums, open, "open_groups"),
                                 {tokens, groups, 1}, "open_groups_of_experts");
    const ValueId seen =
        pointwise(node, "seen", {grouped, mark}, DataType::kF32, [](Expressions in) {
          return select(in[1] == 0, in[0].number(-std::numeric_limits<double>::infinity()), in[0]);
        });
    scores = reshape(node, seen, {tokens, experts}, "seen_scores");
  }
  const ValueId chosen = mark_largest(node, scores, k, "experts");
  return pointwise_result(node, {logits, chosen}, dtype, [&](Expressions in) {
    const Expression own = share(in);
    return select(in[1] == 0, own.number(hidden), max(own, own.number(1e-20)).apply(Opcode::kLog));
  });
}

constexpr OpRow kExpertsRows[] = {
    {kMicrosoft, "MoE", 1, kLatest, import_moe},
    {kMicrosoft, "MoEGroupRouter", 1, kLatest, import_group_router},
    {kMicrosoft, "QMoE", 1, kLatest, import_quantized_moe},
};

}  // namespace

std::span<const OpRow> experts_rows() { return kExpertsRows; }

}  // namespace anneal
