// Cumulative: "cuda.cumulative.lines". Sums and products of floats are in f64 and rounded once, as
// cpu.cumulative.reference has them. A line of one thread adds in the reference's order; others by
// the tree of device/scan.h.
#include <fmt/format.h>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/lines.h"

namespace anneal::cuda {
namespace {

constexpr int kCumulativeThreads = 256;  // of a block
constexpr int kElementsAtOnce = 4;       // of a thread
// Elements of a line from which a warp, or a block, shares it.
constexpr int64_t kWorthWarpOfLine = 32, kWorthBlockOfLine = 512;
// Lines beside each other in memory that give each thread one.
constexpr int64_t kManyLines = 4096;

int threads_of_line(const Request& request, int axis) {
  const int64_t length = usual_length(request, axis);
  const bool apart = !(request.inputs[0].strides[axis] == Size(1));
  if (length < kWorthWarpOfLine || (apart && usual_lines(request, axis) >= kManyLines)) return 1;
  return length < kWorthBlockOfLine ? 32 : kCumulativeThreads;
}

std::string line_text(const Cumulative& op, const Request& request, const Lines& lines, int axis,
                      int threads, std::string_view index) {
  const DataType dtype = request.inputs[0].type.dtype;
  const std::string value = fmt::format("{}(value)", type_text(register_type(accumulator(dtype))));
  return lines.coordinates() +
         fmt::format(
             "const i64 base = {base};\n"
             "scan::along<{threads}, {each}, {reverse}, {exclusive}>(\n"
             "    {index}({length}), T({start}), partial, {combine}(),\n"
             "    [&]({index} i) {{ return T({element}); }},\n"
             "    [&](i64 i{axis}, T value) {{ {store} }});\n",
             fmt::arg("base", lines.base({false, 0})), fmt::arg("threads", threads),
             fmt::arg("each", kElementsAtOnce), fmt::arg("index", index),
             fmt::arg("reverse", op.reverse), fmt::arg("exclusive", op.exclusive),
             fmt::arg("length", lines.length()),
             fmt::arg("start", op.kind == CumulativeKind::kProd ? 1 : 0),
             fmt::arg("combine", op.kind == CumulativeKind::kProd ? "Multiply" : "Add"),
             fmt::arg("element",
                      loaded(dtype, fmt::format("x0[base + i * {}]", lines.step({false, 0})))),
             fmt::arg("axis", axis),
             fmt::arg("store", store_call(value, request.outputs[0].type.shape.rank())));
}

KernelResult make_cumulative(const Cumulative& op, const Request& original) {
  const auto given = integers(original.inputs[1]);
  if (!given || given->size() != 1) return refuse("an axis that is not constant");
  const int rank = original.inputs[0].type.shape.rank();
  const int axis = static_cast<int>((*given)[0] < 0 ? (*given)[0] + rank : (*given)[0]);
  if (axis < 0 || axis >= rank) return refuse("an axis that the input does not have");
  const OperandViews seen(original, {0});
  const Request request = seen.request();
  const DataType dtype = request.inputs[0].type.dtype;
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator(dtype), extents);
  if (!store) return refuse(store.reason());
  const int threads = threads_of_line(request, axis);
  const Lines lines(request, extents, axis);
  const std::string count = lines.count();
  const std::string loop =
      line_loop(threads, kCumulativeThreads,
                line_text(op, request, lines, axis, threads,
                          seen.is_small(request.inputs[0].type.shape) ? "i32" : "i64"));
  std::string text = fmt::format(
      "{definition}using T = {type};\n"
      "KERNEL($name, {threads})({inputs}{stores}{extents}) {{\n"
      "SHARED(T, partial, {partials});\nconst Store store = {construction};\n"
      "const i64 lines = {count};\n{loop}}}\n",
      fmt::arg("definition", store->definition()),
      fmt::arg("type", is_float(dtype) ? "f64" : type_text(register_type(dtype))),
      fmt::arg("threads", kCumulativeThreads), fmt::arg("inputs", input_parameters(request, 1)),
      fmt::arg("stores", store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("partials", kCumulativeThreads / 32 * kElementsAtOnce),
      fmt::arg("construction", store->construction()), fmt::arg("count", count),
      fmt::arg("loop", loop));
  FunctionParts parts =
      parts_of(request, seen, extents,
               {"cumulative", {"program.h", "lanes.h", "rows.h", "scan.h"}, std::move(text)});
  parts.geometry = [axis, threads, spec = &spec_of(request.device)](FunctionParts::Views inputs,
                                                                    FunctionParts::Views) {
    const int64_t needed = inputs[0].dims[axis] == 0 ? 0 : Lines::count(inputs[0].dims, axis);
    return Geometry{
        .grid = {resident_blocks_for(*spec, needed * threads, kCumulativeThreads), 1, 1},
        .block = {kCumulativeThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

constexpr KernelEntry kCumulativeEntries[] = {
    entry<Cumulative, make_cumulative>("cuda.cumulative.lines"),
};

}  // namespace

std::span<const KernelEntry> cumulative_entries() { return kCumulativeEntries; }

}  // namespace anneal::cuda
