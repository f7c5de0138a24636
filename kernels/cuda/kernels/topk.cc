// TopK: "cuda.topk.lines". A warp sorts a short line, and a block selects and sorts the first
// elements of a long one (device/top_k.h).
#include <fmt/format.h>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/function_kernel.h"
#include "anneal/kernels/cuda/kernels/lines.h"

namespace anneal::cuda {
namespace {

constexpr int kTopKThreads = 256;  // of a block
// Places in shared memory for the elements of a line.
constexpr int64_t kRoomOfWarp = 128, kRoomOfBlock = 1024;

// The text of a TopK of a request.
struct TopKText {
  const TopK& op;
  const Request& request;
  Extents& extents;
  int threads;        // of a line: a warp or a block
  const char* index;  // the type of positions in a line

  int axis() const { return static_cast<int>(op.axis); }
  DataType dtype() const { return request.inputs[0].type.dtype; }
  std::string type() const { return type_text(register_type(dtype())); }
  const char* key() const { return size_of(dtype()) == 8 ? "u64" : "u32"; }
  int64_t room() const { return threads == 32 ? kRoomOfWarp : kRoomOfBlock; }

  std::string shared() const {
    return fmt::format(
        "SHARED({key}, keys, {places});\nSHARED({index}, indices, {places});\n"
        "SHARED(u32, counts, 258);\nSHARED(u32, partial, 8);\nSHARED({type}, of_warps, 8);\n"
        "const i32 own = i32(threadIdx.x) / {threads} * {room};\n"
        "const top_k::Room<{key}, {index}> room{{keys + own, indices + own, counts, partial}};\n",
        fmt::arg("key", key()), fmt::arg("index", index), fmt::arg("type", type()),
        fmt::arg("places", room() * kTopKThreads / threads), fmt::arg("threads", threads),
        fmt::arg("room", room()));
  }
  // The value that is stored for element i. Without softmax these are the bits of the input.
  std::string value_text(const std::string& element) const {
    if (op.of == TopKOf::kValues) return element;
    const std::string shifted = loaded(dtype(), element) + " - most";
    return stored(dtype(), op.of == TopKOf::kLogSoftmax
                               ? fmt::format("{} - op::log(sum)", shifted)
                               : fmt::format("op::exp({}) / sum", shifted));
  }
  std::string line() const {
    const Lines lines(request, extents, axis());
    const std::string element = fmt::format("x0[base + i * {}]", lines.step({false, 0}));
    std::string text = lines.coordinates();
    text += fmt::format(
        "const i64 base = {}, base_y0 = {}, base_y1 = {};\nconst auto element = [&](i64 i) {{ "
        "return {}; }};\n",
        lines.base({false, 0}), lines.base({true, 0}), lines.base({true, 1}),
        loaded(dtype(), element));
    if (op.of != TopKOf::kValues)
      text += fmt::format(
          "{type} most, sum;\ntop_k::softmax_of<{threads}, {type}>({index}({length}), of_warps, "
          "element, most, sum);\n",
          fmt::arg("type", type()), fmt::arg("threads", threads), fmt::arg("index", index),
          fmt::arg("length", lines.length()));
    return text +
           fmt::format(
               "top_k::first_of<{threads}, {room}>(room, {index}({length}), {index}({k}),\n"
               "    [&]({index} i) {{ return {key}({flip}top_k::key_of(element(i))); }},\n"
               "    [&](i64 n, i64 i) {{\n"
               "      y0[base_y0 + n * {step0}] = {value};\n"
               "      y1[base_y1 + n * {step1}] = i;\n    }});\n",
               fmt::arg("threads", threads), fmt::arg("room", room()), fmt::arg("index", index),
               fmt::arg("length", lines.length()), fmt::arg("k", extents.output_dim(0, axis())),
               fmt::arg("key", key()), fmt::arg("flip", op.largest ? "~" : ""),
               fmt::arg("step0", lines.step({true, 0})), fmt::arg("value", value_text(element)),
               fmt::arg("step1", lines.step({true, 1})));
  }
};

KernelResult make_topk(const TopK& op, const Request& original) {
  for (const Program& epilogue : original.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue of an op with several outputs");
  const OperandViews seen(original, {0});
  const Request request = seen.request();
  const int axis = static_cast<int>(op.axis);
  const Shape& shape = request.inputs[0].type.shape;
  const bool is_short = request.sizes.range(shape[axis]).max <= kRoomOfWarp;
  Extents extents(request);
  const TopKText topk{op, request, extents, is_short ? 32 : kTopKThreads,
                      seen.is_small(shape) ? "i32" : "i64"};
  const std::string lines = Lines(request, extents, axis).count();
  const std::string loop = line_loop(topk.threads, kTopKThreads, topk.line());
  std::string text = fmt::format(
      "KERNEL($name, {})({}, Out<{}> y0, Out<i64> y1{}) {{\n{}"
      "const i64 lines = {};\n{}}}\n",
      kTopKThreads, input_parameters(request, 1), type_text(topk.dtype()), extents.parameters(),
      topk.shared(), lines, loop);
  FunctionParts parts =
      parts_of(request, seen, extents,
               {"topk", {"program.h", "lanes.h", "rows.h", "scan.h", "top_k.h"}, std::move(text)});
  parts.geometry = [axis, threads = topk.threads, spec = &spec_of(request.device)](
                       FunctionParts::Views inputs, FunctionParts::Views outputs) {
    const int64_t needed = outputs[0].dims[axis] == 0 ? 0 : Lines::count(inputs[0].dims, axis);
    return Geometry{.grid = {resident_blocks_for(*spec, needed * threads, kTopKThreads), 1, 1},
                    .block = {kTopKThreads, 1, 1}};
  };
  return std::make_unique<FunctionKernel>(std::move(parts));
}

constexpr KernelEntry kTopkEntries[] = {entry<TopK, make_topk>("cuda.topk.lines")};

}  // namespace

std::span<const KernelEntry> topk_entries() { return kTopkEntries; }

}  // namespace anneal::cuda
