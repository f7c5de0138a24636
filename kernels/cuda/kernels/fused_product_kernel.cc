#include "anneal/kernels/cuda/kernels/fused_product_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/fail.h"

namespace anneal::cuda {

void add_functions(FusedProductParts& parts, const Request& request, const FunctionText& text) {
  const auto add = [&](uint32_t aligned, bool store_aligned) {
    FunctionText with = text;
    with.text =
        fmt::format("enum : i32 {{ aligned = {} }};\nenum : bool {{ store_aligned = {} }};\n{}",
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

KernelResult make_fused_product(FusedProductParts parts, const Request& request) {
  const size_t arguments = request.inputs.size() + request.outputs.size() + parts.sources.size();
  if (arguments > Arguments::kMost)
    return refuse(
        fmt::format("{} arguments, where a launch takes {}", arguments, Arguments::kMost));
  if (parts.store)
    for (size_t i = parts.store->first_input(); i < request.inputs.size(); ++i)
      parts.inputs.push_back(i);
  return std::make_unique<FunctionKernel>(std::move(parts));
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

std::vector<Tactic> accepted_tactics(const Request& request,
                                     KernelResult (*make)(const Request& request),
                                     std::vector<Tactic> (*list)(const Request& request)) {
  if (!make(request)) return {};
  std::vector<Tactic> tactics = list(request);
  std::erase_if(tactics, [&](const Tactic& tactic) {
    Request asked = request;
    asked.tactic = tactic;
    return !make(asked);
  });
  return tactics;
}

}  // namespace anneal::cuda
