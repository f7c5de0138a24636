// LinearAttention: "cuda.linear_attention.warps". device/linear_attention.h has the algorithm.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "anneal/core/integer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/recurrent/layer_text.h"
#include "anneal/kernels/cuda/text/program_text.h"
#include "anneal/kernels/cuda/text/shape_text.h"

namespace anneal::cuda {
namespace {

enum LinearInput : size_t { kQuery, kKey, kValue, kState, kDecay, kBeta };

constexpr int kLinearThreads = 128;  // of a block
constexpr int64_t kStateColumnsOfWarp = 4, kMostStateRowsOfLane = 16;

class LinearAttentionText {
 public:
  LinearAttentionText(const LinearAttention& op, const Request& request, Extents& extents,
                      int64_t rows)
      : op_(op), request_(request), extents_(extents), rows_(rows) {}

  FunctionText text() {
    const std::string functions = accessors();
    std::string fields, parameters, names;
    const auto add = [&](std::string_view type, std::string_view kind, size_t i) {
      fields += fmt::format("  {} {}{};\n", type, kind, i);
      parameters += fmt::format("{}{} {}{}", parameters.empty() ? "" : ", ", type, kind, i);
      names += fmt::format("{}{}{}", names.empty() ? "" : ", ", kind, i);
    };
    for (size_t i = 0; i < request_.inputs.size(); ++i)
      if (has(i)) add("In<f32>", "x", i);
    for (const size_t i : {size_t{0}, size_t{1}}) add("Out<f32>", "y", i);
    for (size_t i = 0; i < extents_.sources().size(); ++i) fields += fmt::format("  i64 v{};\n", i);
    return {"linear_attention",
            {"program.h", "lanes.h", "rows.h", "linear_attention.h"},
            fmt::format("struct Layer {{\n  using Index = {};\n"
                        "  enum : int {{ kRows = {}, kColumns = {} }};\n"
                        "  enum : bool {{ kHasState = {}, kHasDecay = {}, kHasBeta = {} }};\n"
                        "{}{}}};\n"
                        "KERNEL($name, {})({}{}) {{\nconst Layer layer = {{{}{}}};\n"
                        "linear_attention::run(layer);\n}}\n",
                        index_type(request_), rows_, kStateColumnsOfWarp, has(kState), has(kDecay),
                        has(kBeta), fields, functions, kLinearThreads, parameters,
                        extents_.parameters(), names, extents_.names())};
  }

 private:
  bool has(size_t input) const { return is_present(request_, input); }
  std::string size(std::string_view name, size_t input, int axis) {
    return size_text(extents_, name, input, axis);
  }
  std::string element(bool of_output, size_t operand, CoordinateNames at) {
    return fmt::format("{}{}[{}]", of_output ? "y" : "x", operand,
                       place_text(request_, extents_, of_output, operand, at));
  }
  std::string get(std::string_view name, std::string_view parameters, size_t input,
                  CoordinateNames at) {
    if (!has(input)) return "";
    return function_text("f32", name, parameters,
                         fmt::format("return {};", element(false, input, at)));
  }
  std::string put(std::string_view name, std::string_view parameters, size_t output,
                  CoordinateNames at) {
    return function_text("void", name, parameters, element(true, output, at) + " = value;");
  }
  int64_t heads(size_t input) const { return request_.inputs[input].type.shape[2].value(); }

  std::string accessors() {
    const int64_t own = heads(kValue), queries = heads(kQuery);
    const auto shared = [&](int64_t of) { return fmt::format("head / Index({})", own / of); };
    const int64_t readers = std::max<int64_t>(queries / own, 1);
    const std::string reader = fmt::format("(head * Index({}) + reader)", readers);
    const std::string query = queries < own ? shared(queries) : reader;
    const bool by_row = has(kDecay) && !(request_.inputs[kDecay].type.shape[3] == Size(1));
    const bool by_head = has(kBeta) && !(request_.inputs[kBeta].type.shape[2] == Size(1));
    const std::string_view row = op_.transposed ? "j" : "i", column = op_.transposed ? "i" : "j";
    return size("batch", kValue, 0) + size("length", kValue, 1) + size("heads", kValue, 2) +
           size("columns", kValue, 3) + size("rows", kKey, 3) +
           function_text("Index", "readers", "", fmt::format("return Index({});", readers)) +
           function_text("f32", "scale", "",
                         fmt::format("return {};", literal(RegisterType::kF32,
                                                           std::bit_cast<uint32_t>(op_.scale)))) +
           get("q", "Index b, Index t, Index head, [[maybe_unused]] Index reader, Index i", kQuery,
               {"b", "t", query, "i"}) +
           get("k", "Index b, Index t, Index head, Index i", kKey,
               {"b", "t", shared(heads(kKey)), "i"}) +
           get("v", "Index b, Index t, Index head, Index j", kValue, {"b", "t", "head", "j"}) +
           get("decay", "Index b, Index t, Index head, [[maybe_unused]] Index i", kDecay,
               {"b", "t", "head", by_row ? "i" : "0"}) +
           get("beta", "Index b, Index t, [[maybe_unused]] Index head", kBeta,
               {"b", "t", by_head ? "head" : "0"}) +
           get("first", "Index b, Index head, Index i, Index j", kState,
               {"b", "head", row, column}) +
           put("put_y", "Index b, Index t, Index head, Index reader, Index j, f32 value", 0,
               {"b", "t", reader, "j"}) +
           put("put_state", "Index b, Index head, Index i, Index j, f32 value", 1,
               {"b", "head", row, column});
  }

  const LinearAttention& op_;
  const Request& request_;
  Extents& extents_;
  int64_t rows_;  // of a lane
};

KernelResult make_linear_attention(const LinearAttention& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue of an op with several outputs");
  const Size width = request.inputs[kKey].type.shape[3];
  if (!width.known()) return refuse("a width of keys known only at run time");
  const int64_t rows = std::max<int64_t>(ceil_div(width.value(), int64_t{32}), 1);
  if (rows > kMostStateRowsOfLane) return refuse(fmt::format("keys of {} numbers", width.value()));
  Extents extents(request);
  LinearAttentionText text(op, request, extents, rows);
  FunctionParts parts;
  parts.function = code_of(request.device).add(text.text());
  for (size_t i = 0; i < request.inputs.size(); ++i)
    if (request.inputs[i].present) parts.inputs.push_back(i);
  parts.sources = extents.sources();
  parts.geometry = [spec = &spec_of(request.device)](FunctionParts::Views inputs,
                                                     FunctionParts::Views outputs) {
    const Dims& v = inputs[kValue].dims;
    const bool is_empty = count(outputs[0].dims) == 0 && count(outputs[1].dims) == 0;
    const int64_t warps = is_empty ? 0 : v[0] * v[2] * ceil_div(v[3], kStateColumnsOfWarp);
    return Geometry{.grid = {resident_blocks_for(*spec, warps * 32, kLinearThreads), 1, 1},
                    .block = {kLinearThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

constexpr KernelEntry kLinearAttentionEntries[] = {
    entry<LinearAttention, make_linear_attention>("cuda.linear_attention.warps"),
};

}  // namespace

std::span<const KernelEntry> linear_attention_entries() { return kLinearAttentionEntries; }

}  // namespace anneal::cuda
