// A block computes a tile of rows of one head: "cuda.attention.mma" on tensor cores, of 16-bit
// floats with heads of up to 128; "cuda.attention.simt" in f32 on CUDA cores.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/shape_text.h"

namespace anneal::cuda {
namespace {

constexpr int kSimtThreads = 256;
constexpr int64_t kSharedBytes = 48 << 10;  // what every device gives a block

// Shared memory is as attention::Tile of device/attention.h has it.
struct AttentionTile {
  int rows = 16, keys = 16, depth = 0, width = 0;
  static int64_t pitch(int length) { return ((length + 3) / 4 | 1) * int64_t{4}; }
  int64_t bytes() const {
    return 4 * (rows * pitch(depth) + keys * std::max(pitch(depth), pitch(width)) +
                rows * (keys + int64_t{4}));
  }
  // Neighbouring columns of a thread.
  int64_t group() const { return width > 32 ? 4 : width > 16 ? 2 : 1; }
};

// What the two kernels differ in.
struct AttentionForm {
  int64_t rows = 0;  // of q, of a block
  int keys = 0, threads = 0;
  int64_t neighbours = 0;  // columns that a thread stores at once, at most
  std::string run;         // the function of the device, up to the keys of a tile
  std::vector<std::string_view> headers;
};

// The tile with the most rows, then keys, that shared memory holds, and no more rows than there
// are.
Result<AttentionForm> simt_form(int64_t queries, int64_t depth, int64_t width) {
  const std::string too_wide = "heads that are too wide for a tile in shared memory";
  if (depth > 512 || width > 256) return refuse(too_wide);
  for (const int rows : {64, 32, 16}) {
    if (rows > 16 && rows >= 2 * queries) continue;
    for (const int keys : {32, 16}) {
      const AttentionTile tile{rows, keys, static_cast<int>(depth), static_cast<int>(width)};
      const int64_t sums = int64_t{rows} / 16 * ((width + 15) / 16);
      if (tile.bytes() <= kSharedBytes && sums <= 32)
        return AttentionForm{.rows = rows,
                             .keys = keys,
                             .threads = kSimtThreads,
                             .neighbours = tile.group(),
                             .run = fmt::format("attention::run<{}", rows),
                             .headers = {"program.h", "lanes.h", "rows.h", "attention.h"}};
    }
  }
  return refuse(too_wide);
}

// Warps of 16 rows, fewer where blocks are few: each multiprocessor should have one.
Result<AttentionForm> mma_form(int64_t heads, int64_t queries, int64_t depth, int64_t width) {
  constexpr int64_t kMultiprocessors = 128;
  if (depth > 128 || width > 128) return refuse("heads wider than 128");
  int warps = 4;
  while (warps > 1 && (8 * warps >= queries ||
                       heads * ceil_div(queries, int64_t{16} * warps) < kMultiprocessors))
    warps /= 2;
  // Two stages of keys and values are at most 32 KiB.
  return AttentionForm{.rows = int64_t{16} * warps,
                       .keys = std::max(depth, width) > 64 ? 32 : 64,
                       .threads = 32 * warps,
                       .neighbours = 8,
                       .run = fmt::format("attention::run_mma<{}", warps),
                       .headers = {"program.h", "lanes.h", "rows.h", "mma.h", "mma_product.h",
                                   "attention.h", "attention_mma.h"}};
}

// "struct Score {...}": a score of the product and its coordinates.
struct ScoreText {
  std::string definition, construction, parameters;
};
ScoreText score_text(const Attention& op, const Request& request, Extents& extents) {
  const Shape &q = request.inputs[0].type.shape, &k = request.inputs[1].type.shape;
  const Shape space = {request.outputs[0].type.shape[0], q[1], q[2], k[2]};
  const auto coordinate = [](int axis) { return fmt::format("i{}", axis); };
  ScoreText text;
  std::string statements, result = "a", fields, names;
  if (!op.score.empty()) {
    const auto input = [&](int i) {
      if (i == 0) return std::string("a");
      const int operand = i + 2;
      return loaded(
          request.inputs[static_cast<size_t>(operand)].type.dtype,
          fmt::format("x{}[{}]", operand,
                      offset_text(request, extents, {false, operand}, space, coordinate)));
    };
    ProgramText program = text_of(op.score, input, coordinate, "s");
    statements = std::move(program.statements);
    result = program.registers[0];
  }
  for (int i = 3; i < request.op_input_count; ++i) {
    const std::string declared =
        fmt::format("In<{}> x{}", type_text(request.inputs[static_cast<size_t>(i)].type.dtype), i);
    fields += declared + "; ";
    text.parameters += ", " + declared;
    names += fmt::format("{}x{}", names.empty() ? "" : ", ", i);
  }
  for (size_t i = 0; i < extents.sources().size(); ++i) fields += fmt::format("i64 v{}; ", i);
  std::string given = extents.names();
  if (names.empty() && !given.empty()) given = given.substr(2);
  text.definition = fmt::format(
      "struct Score {{\n{}\n__device__ f32 operator()(f32 a, i64 i0, i64 i1, i64 i2, i64 i3) const "
      "{{\n{}return {};\n}}\n}};\n",
      fields, statements, result);
  text.construction = fmt::format("Score{{{}{}}}", names, given);
  return text;
}

// "attention::Strides<i32>{i32(i64(64)), ...}".
std::string indices_text(std::string_view type, std::string_view index,
                         const std::array<std::string, 4>& values) {
  return fmt::format("attention::{0}<{1}>{{{1}({2}), {1}({3}), {1}({4}), {1}({5})}}", type, index,
                     values[0], values[1], values[2], values[3]);
}
std::string strides_text(Extents& extents, std::string_view index, int input) {
  return indices_text("Strides", index,
                      {extents.input_stride(input, 0), extents.input_stride(input, 1),
                       extents.input_stride(input, 2), extents.input_stride(input, 3)});
}

KernelResult make_attention(const Attention& op, const Request& request, bool on_tensor_cores) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype == DataType::kF64) return refuse("f64");
  for (const size_t i : {size_t{1}, size_t{2}})
    if (request.inputs[i].type.dtype != dtype) return refuse("operands of different types");
  const Shape& q = request.inputs[0].type.shape;
  const Size depth = q[3], width = request.inputs[2].type.shape[3];
  if (!depth.known() || !width.known()) return refuse("a width of heads known only at run time");
  if (depth.value() == 0 || width.value() == 0) return refuse("heads of no width");
  const auto usual = [&](Size size) { return request.sizes.range(size).opt; };
  const auto form = on_tensor_cores ? mma_form(usual(q[0]) * usual(q[1]), usual(q[2]),
                                               depth.value(), width.value())
                                    : simt_form(usual(q[2]), depth.value(), width.value());
  if (!form) return refuse(form.reason());
  Extents extents(request);
  FusedProductParts parts;
  const StoreLanes lanes{.axis = 3, .most = form->neighbours, .multiple = 0, .rows = {2}};
  auto store = StoreText::make(request, accumulator(dtype), extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  const ScoreText score = score_text(op, request, extents);
  const std::string_view index = index_type(request);
  const std::string sizes = indices_text("Sizes", index,
                                         {extents.input_dim(0, 1), extents.input_dim(1, 1),
                                          extents.input_dim(0, 2), extents.input_dim(1, 2)});
  const std::string of_q = strides_text(extents, index, 0), of_k = strides_text(extents, index, 1),
                    of_v = strides_text(extents, index, 2);
  for (size_t input = 0; input < 3; ++input) {
    const Operand& operand = request.inputs[input];
    const int64_t in_vector = 16 / static_cast<int64_t>(size_of(dtype));
    parts.vectors.push_back(
        {.operand = input,
         .axis = 3,
         .elements = vector_elements(operand, 3, operand.type.shape[3], in_vector)});
  }
  FunctionText text{.family = "attention", .headers = form->headers, .text = {}};
  text.text = fmt::format(
      "{store}{score}"
      "KERNEL($name, {threads})(In<{element}> q, In<{element}> k, In<{element}> v{inputs}"
      "{parameters}{extents}) {{\n"
      "  {run}, {keys}, {depth}, {width}, {hidden}, {q_lanes}, {k_lanes}, "
      "{v_lanes}>(\n      q, k, v, {of_q}, {of_k}, {of_v}, {sizes}, aligned, {made_score},\n"
      "      {made_store});\n}}\n",
      fmt::arg("store", parts.store->definition()), fmt::arg("score", score.definition),
      fmt::arg("threads", form->threads), fmt::arg("element", type_text(dtype)),
      fmt::arg("inputs", score.parameters), fmt::arg("parameters", parts.store->parameters()),
      fmt::arg("extents", extents.parameters()), fmt::arg("q_lanes", parts.vectors[0].elements),
      fmt::arg("k_lanes", parts.vectors[1].elements),
      fmt::arg("v_lanes", parts.vectors[2].elements), fmt::arg("run", form->run),
      fmt::arg("keys", form->keys), fmt::arg("depth", depth.value()),
      fmt::arg("width", width.value()), fmt::arg("hidden", op.hidden_is_zero),
      fmt::arg("of_q", of_q), fmt::arg("of_k", of_k), fmt::arg("of_v", of_v),
      fmt::arg("sizes", sizes), fmt::arg("made_score", score.construction),
      fmt::arg("made_store", parts.store->construction()));
  add_functions(parts, request, text);
  for (int i = 0; i < request.op_input_count; ++i) parts.inputs.push_back(static_cast<size_t>(i));
  parts.sources = extents.sources();
  parts.geometry = [rows = form->rows, threads = form->threads](
                       std::span<const TensorView>, std::span<const TensorView> outputs) {
    const Dims& y = outputs[0].dims;
    return blocks_of(y[0] * y[1] * ceil_div(y[2], rows), threads);
  };
  return make_fused_product(std::move(parts), request);
}

KernelResult make_mma_attention(const Attention& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype != DataType::kF16 && dtype != DataType::kBF16) return refuse("only f16 and bf16");
  return make_attention(op, request, true);
}
KernelResult make_simt_attention(const Attention& op, const Request& request) {
  return make_attention(op, request, false);
}

// The first has weights of 16 to 22 bits: it is not exact.
constexpr KernelEntry kAttentionEntries[] = {
    entry<Attention, make_mma_attention>("cuda.attention.mma", Layout::kAny, false),
    entry<Attention, make_simt_attention>("cuda.attention.simt"),
};

}  // namespace

std::span<const KernelEntry> attention_entries() { return kAttentionEntries; }

}  // namespace anneal::cuda
