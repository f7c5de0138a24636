// Operators of com.microsoft on weights of a few bits, of which each block has a scale.
#include "anneal/importer/ops/block_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

// Zero points where there are none.
Tensor middles(const Dims& dims, int64_t bits) {
  NewTensor made = allocate_tensor(DataType::kU8, dims);
  std::ranges::fill(made.data, static_cast<std::byte>(1 << (bits - 1)));
  return made.tensor;
}

// A constant; a Reshape in the model may give it its shape, as that of embeddings which a product
// shares.
std::optional<Tensor> constant_of(const Node& node, int input) {
  if (const Tensor* constant = node.constant(input)) return *constant;
  const Graph& graph = node.graph();
  const LayerId made_by = graph.value(node.input(input)).producer;
  if (made_by == LayerId::kNone || !std::holds_alternative<Reshape>(graph.layer(made_by).op))
    return std::nullopt;
  const Tensor* whole = graph.constant(graph.layer(made_by).inputs[0]);
  const Shape& shape = node.shape(input);
  if (!whole || !known(shape)) return std::nullopt;
  return reshaped(*whole, dims_of(shape));
}

// MatMulNBits: w = (code - zero point) * scale, blocks along the inner axis, 2, 4 or 8 bits.
class BlockProduct {
 public:
  explicit BlockProduct(Node& node) : node_(node) {}

  Outputs import() {
    node_.expect_inputs(3, 6);
    const DataType dtype = node_.dtype(kA, kFloats);
    node_.expect_same_dtype({kA, kScales, kBias});
    if (node_.integer("weight_prepacked", 0) != 0)
      node_.unsupported("weights in the layout of a GPU (weight_prepacked)");
    if (node_.has_input(kGroups)) node_.unsupported("blocks in another order (g_idx)");
    if (node_.rank(kA) < 2) node_.unsupported("a product with a vector");
    read_sizes();
    if (node_.has_input(kBias) && node_.shape(kBias) != Shape{Size(columns_)})
      node_.invalid("the bias is not one number for each column");
    // Level 4: operands of 8 bits. Others: f32, f16 and bf16.
    const bool may_round = node_.integer("accuracy_level", 0) == kOperandsOf8Bits;
    if (has_real_zeros() && bits_ < 8 && dtype == DataType::kF32) return less_zero_points();
    const ProductLayer made = layer(may_round);
    if (!node_.has_input(kBias)) return node_.result(made.op, made.inputs);
    return epilogue_result(node_, made.op, made.inputs, {node_.input(kBias)}, dtype,
                           [](Expressions in) { return in[0] + in[1]; });
  }

 private:
  enum Input { kA, kCodes, kScales, kZeroPoints, kGroups, kBias };

  void read_sizes() {
    columns_ = node_.integer("N");
    inner_ = node_.integer("K");
    bits_ = node_.integer("bits", 4);
    block_ = node_.integer("block_size");
    if (bits_ != 2 && bits_ != 4 && bits_ != 8)
      node_.unsupported(fmt::format("weights of {} bits", bits_));
    if (columns_ < 1 || inner_ < 1 || columns_ > kMost || inner_ > kMost || block_ < 8 ||
        block_ > kMost || block_ % 8 != 0)
      node_.invalid(fmt::format("N = {}, K = {}, block_size = {}", columns_, inner_, block_));
    blocks_ = (inner_ + block_ - 1) / block_;
  }

  bool has_real_zeros() const {
    return node_.has_input(kZeroPoints) && node_.dtype(kZeroPoints) != DataType::kU8;
  }

  // Weights of 4 and 2 bits stay so: A (code * scale)^T - (sums of A by blocks) (zero point *
  // scale)^T. Rows are not rounded, since both terms may be much larger than their difference.
  Outputs less_zero_points() {
    node_.expect_same_dtype({kA, kZeroPoints});
    const int64_t padded = blocks_ * block_;
    const Tensor codes =
        reshaped(packed(kCodes, padded, "codes"), {columns_, bytes_of_row(padded, bits_)});
    const Tensor none = allocate_tensor(DataType::kU8, {columns_, blocks_}).tensor;
    const BlockWeights weights{.codes = codes,
                               .bits = bits_,
                               .block = block_,
                               .scales = scales(),
                               .zeros = node_.constant_value(none, "no_zero_points")};
    const ValueId a = padded_a();
    const ProductLayer made = block_product(node_, a, weights, false, "weights");
    const ValueId zeros =
        reshape(node_, node_.input(kZeroPoints), {columns_, blocks_}, "zero_points");
    const ValueId shifts = pointwise(node_, "shifts", {zeros, weights.scales}, DataType::kF32,
                                     [](Expressions in) { return in[0] * in[1]; });
    std::vector<Size> by_block(shape_of(node_, a).begin(), shape_of(node_, a).end());
    by_block.back() = blocks_;
    by_block.emplace_back(block_);
    const ValueId last = node_.integers_value({node_.rank(kA)}, "last_axis");
    const ValueId sums =
        node_.layer(Reduce{.keepdims = false}, {reshape(node_, a, by_block, "blocks_of_a"), last},
                    "block_sums");
    std::vector<ValueId> terms = {
        node_.layer(made.op, made.inputs, "product"),
        node_.layer(MatMul{.transpose_b = true}, {sums, shifts}, "product_of_shifts")};
    if (node_.has_input(kBias)) terms.push_back(node_.input(kBias));
    return pointwise_result(node_, terms, DataType::kF32, [](Expressions in) {
      const Expression y = in[0] - in[1];
      return in.size() > 2 ? y + in[2] : y;
    });
  }

  ProductLayer layer(bool may_round) {
    if (has_real_zeros())
      return {MatMul{.transpose_b = true, .may_round_a = may_round},
              {padded_a(), with_float_zero_points()}};
    const int64_t padded = blocks_ * block_;
    const BlockWeights weights{
        .codes = reshaped(packed(kCodes, padded, "codes"), {columns_, bytes_of_row(padded, bits_)}),
        .bits = bits_,
        .block = block_,
        .scales = scales(),
        .zeros = node_.has_input(kZeroPoints) ? unpacked(kZeroPoints, blocks_, "zero_points")
                                              : ValueId::kNone};
    return block_product(node_, padded_a(), weights, may_round, "weights");
  }

  // A, with zeros for the rest of a last block that is not whole, whose codes mean nothing.
  ValueId padded_a() {
    const int64_t rest = blocks_ * block_ - inner_;
    if (rest == 0) return node_.input(kA);
    const int rank = node_.rank(kA);
    std::vector<int64_t> pads(2 * static_cast<size_t>(rank));
    pads.back() = rest;
    return node_.layer(Pad{}, {node_.input(kA), node_.integers_value(pads, "pads")},
                       "whole_blocks");
  }

  // Codes of `per_row` numbers in each of N rows, packed with the first one in the low bits; each
  // row begins with a new byte.
  Tensor packed(int input, int64_t per_row, std::string_view name) const {
    node_.dtype(input, {DataType::kU8});
    const auto codes = constant_of(node_, input);
    if (!codes) node_.unsupported(fmt::format("{} that are not constant", name));
    const auto bytes = static_cast<int64_t>(codes->bytes().size());
    const int64_t expected = columns_ * bytes_of_row(per_row, bits_);
    if (bytes != expected)
      node_.invalid(fmt::format("{} bytes of {}, {} expected", bytes, name, expected));
    return *codes;
  }

  ValueId unpacked(int input, int64_t per_row, std::string_view name) {
    return node_.constant_value(
        unpacked_rows(packed(input, per_row, name), {columns_, per_row}, bits_), name);
  }

  // [N, blocks]
  ValueId scales() {
    if (product(node_.shape(kScales), node_.sizes()) != Size(columns_ * blocks_))
      node_.invalid("scales are not one for each block");
    return reshape(node_, node_.input(kScales), {columns_, blocks_}, "scales");
  }

  // [N, blocks * block_size] of A's type.
  ValueId with_float_zero_points() {
    node_.expect_same_dtype({kA, kZeroPoints});
    const ValueId codes = unpacked(kCodes, blocks_ * block_, "codes"), scales = this->scales();
    const DataType dtype = node_.dtype(kA);
    const std::vector<Size> by_block = {columns_, blocks_, 1};
    const ValueId blocks = reshape(node_, codes, {columns_, blocks_, block_}, "code_blocks");
    const ValueId shifts =
        reshape(node_, node_.input(kZeroPoints), by_block, "zero_points_of_blocks");
    const ValueId factors = reshape(node_, scales, by_block, "scales_of_blocks");
    const ValueId values =
        pointwise(node_, "values", {blocks, shifts, factors}, dtype,
                  [](Expressions in) { return (in[0].cast(in[1].reg.type) - in[1]) * in[2]; });
    return reshape(node_, values, {columns_, blocks_ * block_}, "weights");
  }

  static constexpr int64_t kMost = 1 << 24;
  static constexpr int64_t kOperandsOf8Bits = 4;
  Node& node_;
  int64_t columns_ = 0, inner_ = 0, bits_ = 0, block_ = 0, blocks_ = 0;
};

// GatherBlockQuantized: rows of a table of (code - zero point) * scale.
class BlockGather {
 public:
  explicit BlockGather(Node& node) : node_(node) {}

  Outputs import() {
    node_.expect_inputs(3, 4);
    node_.dtype(kIndices, anneal::kIndices);
    node_.dtype(kScales, kFloats);
    read_attributes();
    const Dequantize dequantize{.axis = axis_, .block_size = block_};
    const ValueId table =
        node_.layer(dequantize, {padded_codes(), node_.input(kScales), zero_points()}, "table");
    const Gather gather{.axis = gather_axis_};
    if (padding_ == 0) return node_.result(gather, {table, node_.input(kIndices)});
    if (axis_ == gather_axis_)
      node_.unsupported("a last block on the gathered axis that is not whole");
    const int64_t place = axis_ < gather_axis_ ? axis_ : axis_ + node_.rank(kIndices) - 1;
    return node_.result(Slice{},
                        {node_.layer(gather, {table, node_.input(kIndices)}, "rows"),
                         node_.integers_value({0}, "start"), node_.integers_value({depth_}, "end"),
                         node_.integers_value({place}, "axis"), node_.integers_value({1}, "step")});
  }

 private:
  enum Input { kCodes, kIndices, kScales, kZeroPoints };

  void read_attributes() {
    bits_ = node_.integer("bits", 4);
    block_ = node_.integer("block_size", 128);
    gather_axis_ = node_.resolve_axis(node_.integer("gather_axis", 0), node_.rank(kCodes));
    axis_ = node_.resolve_axis(node_.integer("quantize_axis", 1), node_.rank(kCodes));
    codes_ = constant_of(node_, kCodes);
    if (!codes_) node_.unsupported("a table that is not constant");
    if (codes_->count() == 0) node_.unsupported("a table without elements");
    has_bytes_ = node_.narrow_type(kCodes) == 0;
    if (has_bytes_) {
      node_.dtype(kCodes, {DataType::kU8});
      if (bits_ != 2 && bits_ != 4 && bits_ != 8)
        node_.unsupported(fmt::format("weights of {} bits", bits_));
      if (gather_axis_ != 0 || axis_ != node_.rank(kCodes) - 1 || axis_ == 0)
        node_.invalid(
            "a table of uint8 is gathered along axis 0 and has blocks along the last one");
    } else if (bits_ != 4) {
      node_.invalid(fmt::format("bits is {}, but the table has 4", bits_));
    }
    if (block_ < 1) node_.invalid(fmt::format("block_size = {}", block_));
    depth_ = codes_->dims()[static_cast<int>(axis_)] * (has_bytes_ ? 8 / bits_ : 1);
    block_ = std::min(block_, depth_);
    padding_ = (block_ - depth_ % block_) % block_;
  }

  // The codes, a byte for each, with zeros behind a last block that is not whole.
  ValueId padded_codes() {
    ValueId codes = node_.input(kCodes);
    if (has_bytes_) codes = unpacked(kCodes, depth_, "codes");
    if (padding_ == 0) return codes;
    std::vector<int64_t> pads(2 * static_cast<size_t>(node_.rank(kCodes)));
    pads[pads.size() / 2 + static_cast<size_t>(axis_)] = padding_;
    return node_.layer(Pad{}, {codes, node_.integers_value(pads, "pads")}, "whole_blocks");
  }

  ValueId unpacked(int input, int64_t per_row, std::string_view name) {
    const auto packed = constant_of(node_, input);
    if (!packed) node_.unsupported(fmt::format("{} that are not constant", name));
    Dims dims = codes_->dims();
    dims[dims.rank() - 1] = bytes_of_row(per_row, bits_);
    if (packed->dims() != dims)
      node_.invalid(
          fmt::format("{} of {}, {} expected", name, to_string(packed->dims()), to_string(dims)));
    dims[dims.rank() - 1] = per_row;
    return node_.constant_value(unpacked_rows(*packed, dims, bits_), name);
  }

  ValueId zero_points() {
    const bool given = node_.has_input(kZeroPoints);
    if (given && has_bytes_) {
      node_.dtype(kZeroPoints, {DataType::kU8});
      return unpacked(kZeroPoints, (depth_ + padding_) / block_, "zero_points");
    }
    if (given) {
      node_.expect_same_dtype({kCodes, kZeroPoints});
      return node_.input(kZeroPoints);
    }
    if (!has_bytes_) return ValueId::kNone;
    Dims dims = codes_->dims();
    dims[dims.rank() - 1] = (depth_ + padding_) / block_;
    return node_.constant_value(middles(dims, bits_), "zero_points");
  }

  Node& node_;
  int64_t bits_ = 0, block_ = 0, axis_ = 0, gather_axis_ = 0, depth_ = 0, padding_ = 0;
  std::optional<Tensor> codes_;
  bool has_bytes_ = false;  // else the table has an integer of 4 bits for each element
};

// MatMulBnb4: w = number of the code * scale, blocks along the rows of [N, K], 4 bits, the first of
// two in the high bits.
class Bnb4Product {
 public:
  explicit Bnb4Product(Node& node) : node_(node) {}

  Outputs import() {
    node_.expect_inputs(3, 3);
    const DataType dtype = node_.dtype(kA, kFloats);
    node_.dtype(kCodes, {DataType::kU8});
    node_.expect_same_dtype({kA, kScales});
    node_.ignore("training_mode");
    read_attributes();
    codes_ = node_.constant(kCodes), scales_ = node_.constant(kScales);
    if (!codes_ || !scales_) node_.unsupported("weights that are not constant");
    const int64_t elements = columns_ * inner_;
    if (codes_->count() != (elements + 1) / 2 ||
        scales_->count() != (elements + block_ - 1) / block_)
      node_.invalid(fmt::format("{} bytes of codes and {} scales for {} weights", codes_->count(),
                                scales_->count(), elements));
    if (transposed_ && inner_ % block_ == 0) return by_rows(dtype);
    ValueId weights = node_.constant_value(floats(), "weights");
    if (dtype != DataType::kF32) weights = as_type(node_, weights, dtype, "weights_of_a");
    return node_.result(MatMul{.transpose_b = transposed_}, {node_.input(kA), weights});
  }

 private:
  enum Input { kA, kCodes, kScales };

  void read_attributes() {
    columns_ = node_.integer("N"), inner_ = node_.integer("K");
    block_ = node_.integer("block_size");
    transposed_ = node_.integer("transB", 1) != 0;
    const int64_t type = node_.integer("quant_type");
    constexpr int64_t kMost = 1 << 24;
    if (columns_ < 1 || inner_ < 1 || block_ < 2 || columns_ > kMost || inner_ > kMost ||
        block_ > kMost || block_ % 2 != 0)
      node_.invalid(fmt::format("N = {}, K = {}, block_size = {}", columns_, inner_, block_));
    if (type != 0 && type != 1) node_.unsupported(fmt::format("quant_type {}", type));
    encoding_ = type == 0 ? WeightEncoding::kFp4 : WeightEncoding::kNf4;
  }

  // Each row has whole blocks.
  Outputs by_rows(DataType dtype) {
    const ValueId scales =
        node_.constant_value(reshaped(*scales_, {columns_, inner_ / block_}), "scales");
    NewTensor packed = allocate_tensor(DataType::kU8, {columns_, inner_ / 2});
    std::ranges::transform(codes_->as<uint8_t>(), packed.data.begin(), [](uint8_t byte) {
      return static_cast<std::byte>(byte >> 4 | byte << 4);
    });
    MatMul op{.transpose_b = true};
    if (dtype == DataType::kF32) {
      op.b_encoding = encoding_;
      const ValueId codes = node_.constant_value(packed.tensor, "codes");
      return node_.result(op, {node_.input(kA), codes, ValueId::kNone, ValueId::kNone, scales});
    }
    const ValueId codes =
        node_.constant_value(unpacked_rows(packed.tensor, {columns_, inner_}, 4), "codes");
    const ValueId weights = node_.layer(
        Dequantize{.axis = 1, .block_size = block_, .encoding = encoding_}, {codes, scales}, "");
    return node_.result(op, {node_.input(kA), weights});
  }

  Tensor floats() const {
    NewTensor table = allocate_tensor(
        DataType::kF32, transposed_ ? Dims{columns_, inner_} : Dims{inner_, columns_});
    auto* to = reinterpret_cast<float*>(table.data.data());
    const std::vector<double> factors = numbers_of(*scales_);
    const auto numbers = numbers_of_4_bits(encoding_);
    const auto bytes = codes_->as<uint8_t>();
    for (int64_t i = 0; i < columns_ * inner_; ++i) {
      const int code = bytes[static_cast<size_t>(i / 2)] >> (i % 2 == 0 ? 4 : 0) & 15;
      to[i] = numbers[static_cast<size_t>(code)] *
              static_cast<float>(factors[static_cast<size_t>(i / block_)]);
    }
    return table.tensor;
  }

  Node& node_;
  int64_t columns_ = 0, inner_ = 0, block_ = 0;
  bool transposed_ = true;
  WeightEncoding encoding_ = WeightEncoding::kFp4;
  const Tensor *codes_ = nullptr, *scales_ = nullptr;
};

Outputs import_mat_mul_bnb4(Node& node) { return Bnb4Product(node).import(); }
Outputs import_mat_mul_nbits(Node& node) { return BlockProduct(node).import(); }
Outputs import_gather_block_quantized(Node& node) { return BlockGather(node).import(); }

constexpr OpRow kBlockWeightsRows[] = {
    {kMicrosoft, "GatherBlockQuantized", 1, kLatest, import_gather_block_quantized},
    {kMicrosoft, "MatMulBnb4", 1, kLatest, import_mat_mul_bnb4},
    {kMicrosoft, "MatMulNBits", 1, kLatest, import_mat_mul_nbits},
};

}  // namespace

Tensor unpacked_rows(const Tensor& packed, const Dims& dims, int64_t bits) {
  const auto bytes = packed.as<uint8_t>();
  const int64_t per_row = dims[dims.rank() - 1], row_bytes = bytes_of_row(per_row, bits);
  const int64_t rows = count(dims) / std::max<int64_t>(per_row, 1);
  NewTensor fresh = allocate_tensor(DataType::kU8, dims);
  size_t next = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < per_row; ++i) {
      const unsigned byte = bytes[static_cast<size_t>(row * row_bytes + i * bits / 8)];
      const unsigned code = byte >> (i * bits % 8) & ((1U << bits) - 1);
      fresh.data[next++] = static_cast<std::byte>(code);
    }
  return fresh.tensor;
}

ProductLayer block_product(Node& node, ValueId x, const BlockWeights& weights, bool may_round_x,
                           std::string_view name) {
  const auto suffix = [&](const char* what) { return fmt::format("{}/{}", name, what); };
  MatMul op{.transpose_b = true, .may_round_a = may_round_x};
  const DataType dtype = node.graph().value(x).type().dtype;
  if (weights.bits < 8 && dtype == DataType::kF32) {
    op.b_encoding = weights.bits == 4 ? WeightEncoding::kU4 : WeightEncoding::kU2;
    const ValueId codes = node.constant_value(weights.codes, suffix("codes"));
    return {op, {x, codes, ValueId::kNone, weights.zeros, weights.scales}};
  }
  const Dims& packed = weights.codes.dims();
  const Tensor codes =
      unpacked_rows(weights.codes, {packed[0], packed[1] * 8 / weights.bits}, weights.bits);
  ValueId zeros = weights.zeros;
  if (zeros == ValueId::kNone) {
    const Dims blocks = {packed[0], codes.dims()[1] / weights.block};
    zeros = node.constant_value(middles(blocks, weights.bits), suffix("zero_points"));
  }
  const ValueId reals =
      node.layer(Dequantize{.axis = 1, .block_size = weights.block},
                 {node.constant_value(codes, suffix("codes")), weights.scales, zeros}, name);
  return {op, {x, reals}};
}

std::span<const OpRow> block_weights_rows() { return kBlockWeightsRows; }

}  // namespace anneal
