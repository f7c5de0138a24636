#include "anneal/kernels/cuda/kernels/window_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "anneal/core/fail.h"
#include "anneal/core/integer.h"

namespace anneal::cuda {
namespace {

constexpr int kWindowThreads = 256;

}  // namespace

int readable_channels(const Operand& x, int64_t most) {
  const auto in_16_bytes = 16 / static_cast<int64_t>(size_of(x.type.dtype));
  return static_cast<int>(vector_elements(x, 1, x.type.shape[1], std::min(in_16_bytes, most)));
}

KernelResult make_window_kernel(const Request& request, Extents& extents, const ShapeText& shape,
                                WindowKernel kernel) {
  FusedProductParts parts;
  const StoreLanes lanes = store_lanes(kernel.share);
  auto store = StoreText::make(request, kernel.accumulator, extents, 1, &lanes);
  if (!store) return refuse(store.reason());
  parts.store = *std::move(store);
  FunctionText text{.family = std::string(kernel.family),
                    .headers = {"program.h", "lanes.h", "window.h", kernel.header},
                    .text = {}};
  text.text = fmt::format(
      "{}{}{}{}KERNEL($name, {})({}{}{}) {{\n"
      "  const Shape s = {};\n  const Result result{{{}}};\n  window::{};\n}}\n",
      parts.store->definition(), kernel.definitions, shape.definition(),
      result_definition(request.outputs[0].type.shape.rank(),
                        type_text(register_type(kernel.accumulator))),
      kWindowThreads, input_parameters(request, static_cast<int>(kernel.inputs)),
      parts.store->parameters(), extents.parameters(), shape.construction(),
      parts.store->construction(), kernel.call);
  parts.vectors = std::move(kernel.vectors);
  add_functions(parts, request, text);
  parts.inputs.resize(kernel.inputs);
  std::iota(parts.inputs.begin(), parts.inputs.end(), size_t{0});
  parts.sources = extents.sources();
  parts.geometry = [share = kernel.share, if_empty = kernel.if_empty](
                       FunctionParts::Views inputs, FunctionParts::Views outputs) {
    if (!if_empty.empty() && count(inputs[0].dims) == 0 && count(outputs[0].dims) != 0)
      fail(ErrorCode::kInvalidArgument, std::string(if_empty));
    return blocks_of(ceil_div(thread_count(outputs[0].dims, share), kWindowThreads),
                     kWindowThreads);
  };
  return make_fused_product(std::move(parts), request);
}

}  // namespace anneal::cuda
