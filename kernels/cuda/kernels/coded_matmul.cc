// MatMul of f32, f16 and bf16 by quantized weights, "cuda.matmul.coded": products of a few rows,
// which take as long as reading the weights, read them as the engine has them
// (device/coded_product.h).
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/matmul_text.h"
#include "anneal/kernels/cuda/text/product_text.h"
#include "anneal/kernels/cuda/text/program_text.h"
#include "anneal/kernels/cuda/text/zero_text.h"

namespace anneal::cuda {
namespace {

constexpr int kA = 0, kCodes = 1, kZeros = 3, kScales = 4;
constexpr int kWarps = 4, kColumnsOfWarp = 2;
constexpr int kColumnsOfBlock = kWarps * kColumnsOfWarp;
constexpr int64_t kMostRows = 8;  // of a block
constexpr int64_t kAtOnce = 8;    // codes of a lane

std::string why_not_coded(const MatMul& op, const Request& request) {
  if (!has_input(request, kScales)) return "weights without scales";
  for (const int i : {kCodes, kZeros, kScales})
    if (has_input(request, i) && request.inputs[static_cast<size_t>(i)].constant == nullptr)
      return "weights, zero points or scales that are not constant";
  if (!op.transpose_b) return "weights of a column that are not neighbours";
  if (op.b_encoding == WeightEncoding::kFp4 || op.b_encoding == WeightEncoding::kNf4)
    return "floats of bitsandbytes";
  const Dims &codes = request.inputs[kCodes].constant->dims(),
             &scales = request.inputs[kScales].constant->dims();
  const int64_t depth = codes[1] * codes_in_byte(op.b_encoding);
  if (depth == 0 || codes[0] == 0) return "no weights";
  if (depth / scales[1] % kAtOnce != 0) return "scales of groups that are no multiple of 8";
  for (const int i : {kCodes, kZeros, kScales}) {
    const Operand& operand = request.inputs[static_cast<size_t>(i)];
    if (has_input(request, i) &&
        !(operand.strides[1] == Size(1) && operand.strides[0] == Size(operand.constant->dims()[1])))
      return "weights or scales that do not lie row by row";
  }
  return {};
}

std::string_view coding_of(WeightEncoding encoding) {
  if (encoding == WeightEncoding::kE4M3) return "kE4M3";
  if (encoding == WeightEncoding::kE5M2) return "kE5M2";
  return encoding == WeightEncoding::kE2M1 ? "kE2M1" : "kInteger";
}

// "struct Zeros": the zero point of a place among the scales.
std::string zeros_text(const MatMul& op, const Request& request) {
  if (has_input(request, kZeros))
    return fmt::format(
        "struct Zeros {{\n  In<{}> data;\n"
        "  __device__ f32 operator()(i64 i) const {{ return f32(op::widen(data[i])); }}\n}};\n",
        type_text(request.inputs[kZeros].type.dtype));
  const bool has_middle = has_integers(op.b_encoding) && op.b_encoding != WeightEncoding::kIntegers;
  return fmt::format(
      "struct Zeros {{\n  __device__ f32 operator()(i64) const {{ return {}; }}\n}};\n",
      has_middle ? 1 << (bits_of(op.b_encoding) - 1) : 0);
}

// "struct RowsOfA": eight neighbours of a row, `elements` at once.
std::string rows_text(const MatMulText& product, DataType dtype, int64_t elements) {
  const std::string read =
      elements > 1 ? fmt::format(
                         "      const auto part = load_lanes<{0}>(data, offset + depth + i,"
                         " (aligned & 1) != 0);\n"
                         "      UNROLL\n      for (int j = 0; j < {0}; ++j)"
                         " eight[i + j] = op::widen(part[j]);\n",
                         elements)
                   : "      eight[i] = op::widen(data[offset + (depth + i) * s.a_depth]);\n";
  return fmt::format(
      "struct RowsOfA {{\n  using Index = Shape::Index;\n  const Shape& s;\n  In<{}> data;\n"
      "  __device__ Index offset(Index row) const {{\n{}  }}\n"
      "  __device__ Vec<f32, 8> eight(Index offset, Index depth) const {{\n"
      "    Vec<f32, 8> eight;\n    UNROLL\n    for (int i = 0; i < 8; i += {}) {{\n{}    }}\n"
      "    return eight;\n  }}\n}};\n",
      type_text(dtype), product.row_offset(), elements, read);
}

// As many as the values to optimize for have, at most kMostRows: a power of two.
int rows_of_block(const MatMulText& product) {
  const int64_t rows = std::clamp<int64_t>(product.sizes().rows, 1, kMostRows);
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(rows)));
}

KernelResult make_coded(const MatMul& op, const Request& request) {
  if (std::string why = why_not_coded(op, request); !why.empty()) return refuse(why);
  Extents extents(request);
  const MatMulText product(op, request, extents);
  const StoreLanes lanes = product.store_lanes(1);
  FusedProductParts parts;
  auto store = StoreText::make(request, DataType::kF32, extents,
                               std::max<size_t>(op.split.size(), 1), &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  ShapeText shape(index_type(request));
  product.add_numbers(shape);

  const Operand &a = request.inputs[kA], &codes = request.inputs[kCodes],
                &scales = request.inputs[kScales];
  const int bits = bits_of(op.b_encoding), rows = rows_of_block(product);
  const int64_t depth = codes.constant->dims()[1] * codes_in_byte(op.b_encoding);
  const VectorAccess of_a = {
      kA, product.a_depth_axis,
      vector_elements(a, product.a_depth_axis, a.type.shape[product.a_depth_axis],
                      16 / static_cast<int64_t>(size_of(a.type.dtype)))};
  // Constants begin at whole words, as rows of whole groups do.
  const int word_bytes = bits == 2 ? 2 : 4;
  const bool has_zeros = has_input(request, kZeros);
  FunctionText text{
      .family = "matmul_coded", .headers = {"program.h", "lanes.h", "coded_product.h"}, .text = {}};
  text.text = parts.store->definition() + shape.definition() + zeros_text(op, request) +
              rows_text(product, a.type.dtype, of_a.elements) + product.result_definition("f32");
  text.text += fmt::format(
      "KERNEL($name, {threads})(In<{type_a}> a, In<{word}> b, {zeros}In<f32> scales{parameters}"
      "{extents}) {{\n"
      "  const Shape s = {made};\n{block}"
      "  const coded::Weights<coded::Coding::{coding}, {bits}, {is_signed}, Zeros> weights{{"
      "b, scales, Zeros{{{zeros_of}}}, {pitch}, {factor_pitch}, {group}}};\n"
      "  coded::few_rows<{rows}, {columns}>(RowsOfA{{s, a}}, weights, {result}, row, s.rows,"
      " column + Shape::Index(threadIdx.x) / 32 * {columns}, {end}, s.depth);\n}}\n",
      fmt::arg("threads", kWarps * 32), fmt::arg("type_a", type_text(a.type.dtype)),
      fmt::arg("word", bits == 2 ? "u16" : "u32"),
      fmt::arg("is_signed", codes.type.dtype == DataType::kI8),
      fmt::arg("zeros", has_zeros ? fmt::format("In<{}> zeros, ",
                                                type_text(request.inputs[kZeros].type.dtype))
                                  : ""),
      fmt::arg("parameters", parts.store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("made", shape.construction()),
      fmt::arg("block", block_text(rows, kColumnsOfBlock, op.split)),
      fmt::arg("coding", coding_of(op.b_encoding)), fmt::arg("bits", bits),
      fmt::arg("zeros_of", has_zeros ? "zeros" : ""),
      fmt::arg("pitch", codes.strides[0].value() / word_bytes),
      fmt::arg("factor_pitch", scales.constant->dims()[0] == 1 ? 0 : scales.strides[0].value()),
      fmt::arg("group", depth / scales.constant->dims()[1]), fmt::arg("rows", rows),
      fmt::arg("columns", kColumnsOfWarp),
      fmt::arg("result", product.result_construction(parts.store->construction())),
      fmt::arg("end", op.split.empty() ? "s.columns" : "part_end"));
  parts.vectors = {of_a};
  add_functions(parts, request, text);
  parts.inputs = {kA, kCodes};
  if (has_zeros) parts.inputs.push_back(kZeros);
  parts.inputs.push_back(kScales);
  parts.sources = extents.sources();
  parts.geometry = [rows, joined = product.first_joined(), split = op.split](
                       std::span<const TensorView>, std::span<const TensorView> outputs) {
    const ProductSizes now = product_sizes(outputs[0].dims, joined, split);
    return blocks_of(block_count(now, rows, kColumnsOfBlock), kWarps * 32);
  };
  return make_fused_product(std::move(parts), request);
}

constexpr KernelEntry kEntries[] = {
    entry<MatMul, make_coded>("cuda.matmul.coded", Layout::kRowMajor),
};

}  // namespace

std::span<const KernelEntry> coded_matmul_entries() { return kEntries; }

}  // namespace anneal::cuda
