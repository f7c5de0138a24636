// Pool: "cuda.pool.window", and with indices of the maxima "cuda.pool.indices". A thread folds the
// windows of a few channels.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"
#include "anneal/kernels/cuda/text/window_text.h"

namespace anneal::cuda {
namespace {

constexpr int kPoolThreads = 256;

WindowOp window_of(const Pool& op) {
  return {op.strides, op.pads_begin, op.pads_end, op.dilations};
}

bool has_padding(const Pool& op) {
  const auto is_not_0 = [](int64_t pad) { return pad != 0; };
  return std::any_of(op.pads_begin.begin(), op.pads_begin.end(), is_not_0) ||
         std::any_of(op.pads_end.begin(), op.pads_end.end(), is_not_0);
}

std::string lowest_text(DataType dtype) {
  const RegisterType type = register_type(dtype);
  if (type == RegisterType::kF32) return "-op::inf_f32()";
  if (type == RegisterType::kF64) return "-op::inf_f64()";
  return fmt::format("{0}(op::least<{1}>())", type_text(type), type_text(dtype));
}

ShapeText shape_of(const Pool& op, const Request& request, Extents& extents, ThreadShare share) {
  ShapeText shape(index_type(request));
  add_window(shape, extents, request, window_of(op), op.ceil_mode);
  const int rank = request.inputs[0].type.shape.rank();
  for (int i = 0; i < 3; ++i) {
    const int axis = axis_of(i, rank);
    shape.number(fmt::format("kernel_{}", "zyx"[i]),
                 axis < 0 ? 1 : op.kernel[static_cast<size_t>(axis - 2)]);
  }
  add_thread_outputs(shape, extents, request, share, "c");
  return shape;
}

// Why this op has no text; empty if it has one.
std::string why_not(const Request& request) {
  const Type& x = request.inputs[0].type;
  if (x.shape.rank() < 3 || x.shape.rank() > 5) return "only one to three spatial axes";
  if (x.dtype == DataType::kBool) return "a pool of bool";
  return {};
}

KernelResult make_window(const Pool& op, const Request& request) {
  if (op.with_indices) return refuse("indices of the maxima");
  std::string reason = why_not(request);
  if (!reason.empty()) return refuse(std::move(reason));
  const Operand& x = request.inputs[0];
  const DataType accumulator = anneal::accumulator(x.type.dtype);
  const std::string type = type_text(register_type(accumulator));
  Extents extents(request);
  FusedProductParts parts;
  ThreadShare share;
  if (op.kind != PoolKind::kLp) {
    // 16 bytes at most, and no more sums than registers hold with ease.
    const auto most = std::min<int64_t>(16 / static_cast<int64_t>(size_of(x.type.dtype)), 4);
    share.channels = static_cast<int>(vector_elements(x, 1, x.type.shape[1], most));
    parts.vectors.push_back({0, 1, share.channels});
  }
  const StoreLanes lanes = store_lanes(share);
  auto store = StoreText::make(request, accumulator, extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  ShapeText shape = shape_of(op, request, extents, share);
  std::string call;
  switch (op.kind) {
    case PoolKind::kMax:
      call = fmt::format("max_pool<{}, {}>(s, x, aligned != 0, {}, result)", share.channels, type,
                         lowest_text(x.type.dtype));
      break;
    case PoolKind::kAverage:
      shape.flag("kCountsPadding", op.count_include_pad);
      // Without ceil_mode a window ends in the padding at the latest.
      shape.flag("kAllCount", !op.ceil_mode && (op.count_include_pad || !has_padding(op)));
      call = fmt::format("average_pool<{}, {}>(s, x, aligned != 0, result)", share.channels, type);
      break;
    case PoolKind::kLp:
      call = fmt::format("lp_pool<{}, {}>(s, x, result)", op.p, type);
  }
  FunctionText text{.family = "pool", .headers = {"program.h", "lanes.h", "window.h"}, .text = {}};
  text.text = fmt::format(
      "{store}{shape}{result}"
      "KERNEL($name, {threads})(In<{element}> x{parameters}{extents}) {{\n"
      "  const Shape s = {made};\n  const Result result{{{construction}}};\n"
      "  window::{call};\n}}\n",
      fmt::arg("store", parts.store->definition()), fmt::arg("shape", shape.definition()),
      fmt::arg("result", result_definition(x.type.shape.rank(), type)),
      fmt::arg("threads", kPoolThreads), fmt::arg("element", type_text(x.type.dtype)),
      fmt::arg("parameters", parts.store->parameters()), fmt::arg("extents", extents.parameters()),
      fmt::arg("made", shape.construction()), fmt::arg("construction", parts.store->construction()),
      fmt::arg("call", call));
  add_functions(parts, request, text);
  parts.inputs = {0};
  parts.sources = extents.sources();
  parts.geometry = [share](std::span<const TensorView>, std::span<const TensorView> outputs) {
    return blocks_of((thread_count(outputs[0].dims, share) + kPoolThreads - 1) / kPoolThreads,
                     kPoolThreads);
  };
  return make_fused_product(std::move(parts), request);
}

// A maximum and its index are stored without a program.
KernelResult make_indices(const Pool& op, const Request& request) {
  if (!op.with_indices) return refuse("no indices are wanted");
  std::string reason = why_not(request);
  if (!reason.empty()) return refuse(std::move(reason));
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue of an op with several outputs");
  const Operand& x = request.inputs[0];
  const int rank = x.type.shape.rank();
  const std::string type = type_text(register_type(x.type.dtype));
  const std::string element = type_text(x.type.dtype);
  Extents extents(request);
  ShapeText shape = shape_of(op, request, extents, {});
  shape.number("channels", extents.input_dim(0, 1));
  shape.add(fmt::format(
      "  __device__ i64 flat(i64 n, i64 c, i64 z, i64 y, i64 x) const {{\n"
      "    return (n * channels + c) * in_z * in_y * in_x + {};\n  }}\n",
      op.column_major_indices ? "(x * in_y + y) * in_z + z" : "(z * in_y + y) * in_x + x"));
  const auto coordinate = [&](int axis) -> std::string {
    return axis == 0 ? "n" : axis == 1 ? "c" : std::string(1, "zyx"[axis - rank + 3]);
  };
  const Shape& space = request.outputs[0].type.shape;
  const std::string maximum = offset_text(request, extents, {true, 0}, space, coordinate);
  const std::string index = offset_text(request, extents, {true, 1}, space, coordinate);
  std::string fields;
  for (size_t i = 0; i < extents.sources().size(); ++i) fields += fmt::format("  i64 v{};\n", i);
  FunctionText text{
      .family = "pool_indices", .headers = {"program.h", "lanes.h", "window.h"}, .text = {}};
  text.text = fmt::format(
      "{shape}struct Result {{\n  Out<{element}> y0;\n  Out<i64> y1;\n{fields}"
      "  __device__ void operator()({type} value, i64 index, i64 n, i64 c, i64 z, i64 y, i64 x)"
      " const {{\n    y0[{maximum}] = {stored};\n    y1[{index}] = index;\n  }}\n}};\n"
      "KERNEL($name, {threads})(In<{element}> x, Out<{element}> y0, Out<i64> y1{extents}) {{\n"
      "  const Shape s = {made};\n"
      "  window::max_pool_with_indices<{type}>(s, x, {lowest}, Result{{y0, y1{names}}});\n}}\n",
      fmt::arg("shape", shape.definition()), fmt::arg("element", element),
      fmt::arg("fields", fields), fmt::arg("type", type), fmt::arg("maximum", maximum),
      fmt::arg("stored", stored(x.type.dtype, "value")), fmt::arg("index", index),
      fmt::arg("threads", kPoolThreads), fmt::arg("extents", extents.parameters()),
      fmt::arg("made", shape.construction()), fmt::arg("lowest", lowest_text(x.type.dtype)),
      fmt::arg("names", extents.names()));
  FusedProductParts parts;
  add_functions(parts, request, text);
  parts.inputs = {0};
  parts.sources = extents.sources();
  parts.geometry = [](std::span<const TensorView>, std::span<const TensorView> outputs) {
    return blocks_of((thread_count(outputs[0].dims, {}) + kPoolThreads - 1) / kPoolThreads,
                     kPoolThreads);
  };
  return make_fused_product(std::move(parts), request);
}

// Channels that are neighbours are read together, and a warp reads and writes whole lines.
constexpr KernelEntry kPoolEntries[] = {
    entry<Pool, make_window>("cuda.pool.window", Layout::kChannelsLast),
    entry<Pool, make_indices>("cuda.pool.indices", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> pool_entries() { return kPoolEntries; }

}  // namespace anneal::cuda
