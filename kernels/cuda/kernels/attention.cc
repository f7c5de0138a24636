// "cuda.attention.simt": a block computes a tile of rows of one head, in f32 on CUDA cores.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/integer.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"

namespace anneal::cuda {
namespace {

constexpr int kAttentionThreads = 256;
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

// The tile with the most rows, then keys, that shared memory holds, and no more rows than there
// are; nullopt if heads are too wide for any.
std::optional<AttentionTile> tile_of(int64_t queries, int64_t depth, int64_t width) {
  if (depth > 512 || width > 256) return std::nullopt;
  for (const int rows : {64, 32, 16}) {
    if (rows > 16 && rows >= 2 * queries) continue;
    for (const int keys : {32, 16}) {
      const AttentionTile tile{rows, keys, static_cast<int>(depth), static_cast<int>(width)};
      const int64_t sums = int64_t{rows} / 16 * ((width + 15) / 16);
      if (tile.bytes() <= kSharedBytes && sums <= 32) return tile;
    }
  }
  return std::nullopt;
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

std::string strides_text(Extents& extents, int input) {
  return fmt::format("attention::Strides{{{}, {}, {}, {}}}", extents.input_stride(input, 0),
                     extents.input_stride(input, 1), extents.input_stride(input, 2),
                     extents.input_stride(input, 3));
}

KernelResult make_simt_attention(const Attention& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype == DataType::kF64) return refuse("f64");
  const Size depth = request.inputs[0].type.shape[3], width = request.inputs[2].type.shape[3];
  if (!depth.known() || !width.known()) return refuse("a width of heads known only at run time");
  const int64_t queries = request.sizes.range(request.inputs[0].type.shape[2]).opt;
  const auto tile = tile_of(queries, depth.value(), width.value());
  if (!tile) return refuse("heads that are too wide for a tile in shared memory");
  if (depth.value() == 0 || width.value() == 0) return refuse("heads of no width");
  Extents extents(request);
  FusedProductParts parts;
  const StoreLanes lanes{.axis = 3, .most = tile->group(), .multiple = 0, .rows = {2}};
  auto store = StoreText::make(request, accumulator(dtype), extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  const ScoreText score = score_text(op, request, extents);
  const std::string sizes =
      fmt::format("attention::Sizes{{{}, {}, {}, {}}}", extents.input_dim(0, 1),
                  extents.input_dim(1, 1), extents.input_dim(0, 2), extents.input_dim(1, 2));
  const std::string of_q = strides_text(extents, 0), of_k = strides_text(extents, 1),
                    of_v = strides_text(extents, 2);
  for (size_t input = 0; input < 3; ++input) {
    const Operand& operand = request.inputs[input];
    const int64_t in_vector = 16 / static_cast<int64_t>(size_of(dtype));
    parts.vectors.push_back(
        {.operand = input,
         .axis = 3,
         .elements = vector_elements(operand, 3, operand.type.shape[3], in_vector)});
  }
  FunctionText text{.family = "attention",
                    .headers = {"program.h", "lanes.h", "rows.h", "attention.h"},
                    .text = {}};
  text.text = fmt::format(
      "{store}{score}"
      "KERNEL($name, {threads})(In<{element}> q, In<{element}> k, In<{element}> v{inputs}"
      "{parameters}{extents}) {{\n"
      "  attention::run<{rows}, {keys}, {depth}, {width}, {hidden}, {q_lanes}, {k_lanes}, "
      "{v_lanes}>(\n      q, k, v, {of_q}, {of_k}, {of_v}, {sizes}, aligned, {made_score},\n"
      "      {made_store});\n}}\n",
      fmt::arg("store", parts.store->definition()), fmt::arg("score", score.definition),
      fmt::arg("threads", kAttentionThreads), fmt::arg("element", type_text(dtype)),
      fmt::arg("inputs", score.parameters), fmt::arg("parameters", parts.store->parameters()),
      fmt::arg("extents", extents.parameters()), fmt::arg("q_lanes", parts.vectors[0].elements),
      fmt::arg("k_lanes", parts.vectors[1].elements),
      fmt::arg("v_lanes", parts.vectors[2].elements), fmt::arg("rows", tile->rows),
      fmt::arg("keys", tile->keys), fmt::arg("depth", tile->depth), fmt::arg("width", tile->width),
      fmt::arg("hidden", op.hidden_is_zero), fmt::arg("of_q", of_q), fmt::arg("of_k", of_k),
      fmt::arg("of_v", of_v), fmt::arg("sizes", sizes), fmt::arg("made_score", score.construction),
      fmt::arg("made_store", parts.store->construction()));
  add_functions(parts, request, text);
  for (int i = 0; i < request.op_input_count; ++i) parts.inputs.push_back(static_cast<size_t>(i));
  parts.sources = extents.sources();
  parts.geometry = [rows = int64_t{tile->rows}](std::span<const TensorView>,
                                                std::span<const TensorView> outputs) {
    const Dims& y = outputs[0].dims;
    return blocks_of(y[0] * y[1] * (ceil_div(y[2], rows)), kAttentionThreads);
  };
  return make_fused_product(std::move(parts), request);
}

constexpr KernelEntry kAttentionEntries[] = {
    entry<Attention, make_simt_attention>("cuda.attention.simt"),
};

}  // namespace

std::span<const KernelEntry> attention_entries() { return kAttentionEntries; }

}  // namespace anneal::cuda
