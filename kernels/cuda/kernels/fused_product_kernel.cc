#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/fail.h"

namespace anneal::cuda {
namespace {

struct PreparedFusedProduct final : PreparedKernel {
  Geometry geometry;
  std::vector<int64_t> values;
  bool strides_allow = true;
};

const TensorView& view_of(const VectorAccess& access, std::span<const TensorView> inputs,
                          std::span<const TensorView> outputs) {
  return (access.is_output ? outputs : inputs)[access.operand];
}

}  // namespace

void add_functions(FusedProductParts& parts, const Request& request, const FunctionText& text) {
  const auto add = [&](uint32_t aligned, bool store_aligned) {
    FunctionText with = text;
    with.text = fmt::format("constexpr i32 aligned = {};\nconstexpr bool store_aligned = {};\n{}",
                            aligned, store_aligned, text.text);
    return code_of(request.device).add(std::move(with));
  };
  parts.function = add((1u << parts.vectors.size()) - 1, true);
  if (parts.store)
    parts.vectors.insert(parts.vectors.end(), parts.store->vectors().begin(),
                         parts.store->vectors().end());
  std::erase_if(parts.vectors, [](const VectorAccess& access) { return access.elements == 1; });
  if (!parts.vectors.empty()) parts.general = add(0, false);
  for (VectorAccess& access : parts.vectors) {
    const auto operands = access.is_output ? request.outputs : request.inputs;
    const Operand& operand = operands[access.operand];
    access.bytes =
        static_cast<uint32_t>(access.elements) * static_cast<uint32_t>(size_of(operand.type.dtype));
    access.has_whole_strides = has_whole_strides(access, operand, request.sizes);
  }
}

void FusedProductKernel::know_alignments(std::span<const uint32_t> inputs,
                                         std::span<const uint32_t> outputs) {
  bool always = true, never = false;
  for (const VectorAccess& access : parts_.vectors) {
    const uint32_t known = (access.is_output ? outputs : inputs)[access.operand];
    const bool is_whole = known % access.bytes == 0;
    always = always && known != 0 && is_whole && access.has_whole_strides;
    never = never || !is_whole;
  }
  if (never) parts_.function = parts_.general, parts_.vectors.clear();
  if (always || never) parts_.general = nullptr;
}

std::unique_ptr<PreparedKernel> FusedProductKernel::prepare(std::span<const TensorView> inputs,
                                                            std::span<const TensorView> outputs,
                                                            int) const {
  auto made = std::make_unique<PreparedFusedProduct>();
  made->geometry = parts_.geometry(inputs, outputs);
  made->values = values_of(parts_.sources, inputs, outputs);
  for (const VectorAccess& access : parts_.vectors)
    made->strides_allow =
        made->strides_allow && strides_allow(access, view_of(access, inputs, outputs));
  return made;
}

void FusedProductKernel::launch(const LaunchArgs& args) const {
  const auto& prepared = static_cast<const PreparedFusedProduct&>(*args.prepared);
  Arguments arguments;
  for (const size_t input : parts_.inputs) arguments.add(args.inputs[input]);
  const bool aligned = prepared.strides_allow &&
                       std::ranges::all_of(parts_.vectors, [&](const VectorAccess& access) {
                         return is_aligned(access, view_of(access, args.inputs, args.outputs));
                       });
  if (!aligned && !parts_.general)
    fail(ErrorCode::kInternal,
         fmt::format("{} is given memory that is less aligned than the plan said",
                     parts_.function->name));
  if (parts_.store) {
    parts_.store->add_arguments(arguments, args.inputs, args.outputs);
  } else {
    for (const TensorView& output : args.outputs) arguments.add(output);
  }
  for (const int64_t value : prepared.values) arguments.add(value);
  cuda::launch(args.stream, aligned ? *parts_.function : *parts_.general, prepared.geometry,
               arguments);
}

KernelResult make_fused_product(FusedProductParts parts, const Request& request) {
  const size_t arguments = request.inputs.size() + request.outputs.size() + parts.sources.size();
  if (arguments > Arguments::kMost)
    return refuse(
        fmt::format("{} arguments, where a launch takes {}", arguments, Arguments::kMost));
  return std::make_unique<FusedProductKernel>(std::move(parts));
}

Geometry blocks_of(int64_t blocks, int threads, int shared_bytes) {
  if (blocks > std::numeric_limits<int32_t>::max())
    fail(ErrorCode::kUnsupported, fmt::format("a grid of {} blocks", blocks));
  Geometry geometry;
  geometry.grid[0] = static_cast<uint32_t>(blocks);
  geometry.block[0] = static_cast<uint32_t>(threads);
  geometry.shared_bytes = static_cast<uint32_t>(shared_bytes);
  return geometry;
}

}  // namespace anneal::cuda
