// Cumulative: "cuda.cumulative.lines". Sums and products of floats are in f64 and rounded once, as
// cpu.cumulative.reference has them. A line of one thread adds in the reference's order; others by
// the tree of device/scan.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

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

// The axes that a run may choose: one, where it is a constant.
Result<std::vector<int>> cumulative_axes(const Request& request) {
  const Operand& given = request.inputs[1];
  const int rank = request.inputs[0].type.shape.rank();
  std::vector<int> axes;
  if (given.constant == nullptr) {
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
    return axes;
  }
  const auto known = integers(given);
  if (!known || known->size() != 1) return refuse("another number of axes than one");
  axes.push_back(static_cast<int>((*known)[0] < 0 ? (*known)[0] + rank : (*known)[0]));
  if (axes[0] < 0 || axes[0] >= rank) return refuse("an axis that the input does not have");
  return axes;
}

// The lines of one axis, as many as `lines` says.
std::string axis_text(const Cumulative& op, const Request& request, Extents& extents, int axis,
                      std::string_view index) {
  const int threads = threads_of_line(request, axis);
  const Lines lines(request, extents, axis);
  return fmt::format(
      "const i64 lines = {};\n{}", lines.count(),
      line_loop(threads, kCumulativeThreads, line_text(op, request, lines, axis, threads, index)));
}

// The axis that a run chooses. One that the input does not have counts as the nearest: a GPU
// reports no values.
std::string chosen_axis_text(int rank) {
  return fmt::format(
      "const i64 given = i64(x1[0]);\n"
      "const i64 axis = op::max(op::min(given < 0 ? given + {} : given, i64({})), i64(0));\n",
      rank, rank - 1);
}

KernelResult make_cumulative(const Cumulative& op, const Request& original) {
  const auto axes = cumulative_axes(original);
  if (!axes) return refuse(axes.reason());
  const bool is_chosen_late = original.inputs[1].constant == nullptr;
  const OperandViews seen(original, is_chosen_late ? std::vector{0, 1} : std::vector{0});
  const Request request = seen.request();
  const DataType dtype = request.inputs[0].type.dtype;
  Extents extents(request);
  const auto store = StoreText::make(request, accumulator(dtype), extents);
  if (!store) return refuse(store.reason());
  const char* const index = seen.is_small(request.inputs[0].type.shape) ? "i32" : "i64";
  std::string body =
      is_chosen_late ? chosen_axis_text(request.inputs[0].type.shape.rank()) : std::string();
  for (const int axis : *axes) {
    const std::string own = axis_text(op, request, extents, axis, index);
    body += is_chosen_late ? fmt::format("if (axis == {}) {{\n{}}}\n", axis, own) : own;
  }
  std::string text = fmt::format(
      "{definition}using T = {type};\n"
      "KERNEL($name, {threads})({inputs}{stores}{extents}) {{\n"
      "SHARED(T, partial, {partials});\nconst Store store = {construction};\n{body}}}\n",
      fmt::arg("definition", store->definition()),
      fmt::arg("type", is_float(dtype) ? "f64" : type_text(register_type(dtype))),
      fmt::arg("threads", kCumulativeThreads),
      fmt::arg("inputs", input_parameters(request, request.op_input_count)),
      fmt::arg("stores", store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("partials", kCumulativeThreads / 32 * kElementsAtOnce),
      fmt::arg("construction", store->construction()), fmt::arg("body", body));
  FunctionParts parts =
      parts_of(request, seen, extents,
               {"cumulative", {"program.h", "lanes.h", "rows.h", "scan.h"}, std::move(text)});
  if (is_chosen_late) parts.host_inputs = {1};
  std::vector<std::pair<int, int>> threads_of_axes;
  for (const int axis : *axes) threads_of_axes.emplace_back(axis, threads_of_line(request, axis));
  parts.geometry = [threads_of_axes, spec = &spec_of(request.device)](FunctionParts::Views inputs,
                                                                      FunctionParts::Views) {
    int64_t threads = 0;
    for (const auto& [axis, of_line] : threads_of_axes)
      if (inputs[0].dims[axis] != 0)
        threads = std::max(threads, Lines::count(inputs[0].dims, axis) * of_line);
    return Geometry{.grid = {resident_blocks_for(*spec, threads, kCumulativeThreads), 1, 1},
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
