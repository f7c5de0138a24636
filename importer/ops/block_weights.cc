// com.microsoft.MatMulNBits: a product with weights of 2, 4 or 8 bits, of which each block along
// the inner axis has a scale and a zero point: w = (code - zero point) * scale.
#include <fmt/format.h>

#include "anneal/core/new_tensor.h"
#include "anneal/importer/onnx/tensor_data.h"
#include "anneal/importer/ops/attention.h"
#include "anneal/importer/ops/expression.h"
#include "anneal/importer/ops/rows.h"

namespace anneal {
namespace {

class BlockProduct {
 public:
  explicit BlockProduct(Node& node) : node_(node) {}

  Outputs import() {
    node_.expect_inputs(3, 6);
    const DataType dtype = node_.dtype(kA, kFloats);
    node_.expect_same_dtype({kA, kScales, kBias});
    node_.ignore("weight_prepacked");
    if (node_.has_input(kGroups)) node_.unsupported("blocks in another order (g_idx)");
    read_sizes();
    // Level 4: operands of 8 bits. Others: f32, f16 and bf16.
    MatMul op{.transpose_b = true,
              .may_round_a = node_.integer("accuracy_level", 0) == kOperandsOf8Bits};
    const bool packed = stay_packed();
    op.b_has_4_bits = packed;
    const std::vector<ValueId> factors =
        packed ? packed_operands() : std::vector<ValueId>{node_.input(kA), weights()};
    if (!node_.has_input(kBias)) return node_.result(op, factors);
    return epilogue_result(node_, op, factors, {node_.input(kBias)}, dtype,
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

  // Whether MatMul reads the codes as the model has them, so that no copy of them is made.
  bool stay_packed() const {
    return bits_ == 4 && node_.dtype(kA) == DataType::kF32 && blocks_ * block_ == inner_ &&
           (!node_.has_input(kZeroPoints) || node_.dtype(kZeroPoints) == DataType::kU8);
  }

  // A and the inputs of MatMul::b_has_4_bits.
  std::vector<ValueId> packed_operands() {
    const Tensor codes = reshaped(packed(kCodes, inner_, "codes"), Dims{columns_, inner_ / 2});
    const ValueId zeros = node_.has_input(kZeroPoints) ? zero_points() : ValueId::kNone;
    return {node_.input(kA), node_.constant_value(codes, "codes"), ValueId::kNone, zeros, scales()};
  }

  int64_t bytes_of_row(int64_t numbers) const { return (numbers * bits_ + 7) / 8; }

  // Codes of `per_row` numbers in each of N rows, packed with the first one in the low bits; each
  // row begins with a new byte.
  const Tensor& packed(int input, int64_t per_row, std::string_view name) const {
    node_.dtype(input, {DataType::kU8});
    const Tensor* codes = node_.constant(input);
    if (codes == nullptr) node_.unsupported(fmt::format("{} that are not constant", name));
    const auto bytes = static_cast<int64_t>(codes->bytes().size());
    if (bytes != columns_ * bytes_of_row(per_row))
      node_.invalid(fmt::format("{} bytes of {}, {} expected", bytes, name,
                                columns_ * bytes_of_row(per_row)));
    return *codes;
  }

  ValueId unpacked(int input, int64_t per_row, std::string_view name) {
    const auto bytes = packed(input, per_row, name).as<uint8_t>();
    const int64_t row_bytes = bytes_of_row(per_row);
    auto fresh = allocate_tensor(DataType::kU8, {columns_, per_row});
    size_t next = 0;
    for (int64_t row = 0; row < columns_; ++row)
      for (int64_t i = 0; i < per_row; ++i) {
        const unsigned byte = bytes[static_cast<size_t>(row * row_bytes + i * bits_ / 8)];
        const unsigned code = byte >> (i * bits_ % 8) & ((1U << bits_) - 1);
        fresh.data[next++] = static_cast<std::byte>(code);
      }
    return node_.constant_value(std::move(fresh.tensor), name);
  }

  // [N, blocks]
  ValueId scales() {
    if (product(node_.shape(kScales), node_.sizes()) != Size(columns_ * blocks_))
      node_.invalid("scales are not one for each block");
    return reshape(node_, node_.input(kScales), {columns_, blocks_}, "scales");
  }

  // [N, K] of A's type.
  ValueId weights() {
    const int64_t padded = blocks_ * block_;
    ValueId codes = unpacked(kCodes, padded, "codes");
    const ValueId scales = this->scales();
    ValueId whole = ValueId::kNone;
    if (node_.has_input(kZeroPoints) && node_.dtype(kZeroPoints) != DataType::kU8)
      whole = with_float_zero_points(codes, scales);
    else
      whole = node_.layer(Dequantize{.axis = 1, .block_size = block_},
                          {codes, scales, zero_points()}, "weights");
    if (padded == inner_) return whole;
    return node_.layer(
        Slice{},
        {whole, node_.integers_value({0}, "start"), node_.integers_value({inner_}, "end"),
         node_.integers_value({1}, "axis"), node_.integers_value({1}, "step")},
        "weights_of_k");
  }

  ValueId zero_points() {
    if (node_.has_input(kZeroPoints)) return unpacked(kZeroPoints, blocks_, "zero_points");
    const std::vector<double> middle(static_cast<size_t>(columns_ * blocks_),
                                     static_cast<double>(1 << (bits_ - 1)));
    return node_.constant_value(tensor_of(DataType::kU8, {columns_, blocks_}, middle),
                                "zero_points");
  }

  ValueId with_float_zero_points(ValueId codes, ValueId scales) {
    node_.expect_same_dtype({kA, kZeroPoints});
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

Outputs import_mat_mul_nbits(Node& node) { return BlockProduct(node).import(); }

constexpr OpRow kBlockWeightsRows[] = {
    {kMicrosoft, "MatMulNBits", 1, kLatest, import_mat_mul_nbits},
};

}  // namespace

std::span<const OpRow> block_weights_rows() { return kBlockWeightsRows; }

}  // namespace anneal
