#include "anneal/bench/gpu/layer_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "anneal/core/fail.h"
#include "anneal/engine/builder/builder.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/graph/text/text.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/depthwise_config.h"
#include "anneal/kernels/cuda/cost/mma_config.h"

namespace anneal::bench {
namespace {

struct NamedTactic {
  std::string text;
  std::vector<std::byte> bytes;
};

// Of all kernels; each refuses those that are not its own.
std::vector<NamedTactic> all_tactics() {
  std::vector<NamedTactic> all;
  for (const cuda::MmaConfig& config : cuda::mma_configs())
    all.push_back({cuda::to_string(config), cuda::tactic_of(config)});
  for (const cuda::TileConfig& config : cuda::tile_configs())
    all.push_back({cuda::to_string(config), cuda::tactic_of(config)});
  for (const int channels : {8, 4, 2, 1})
    for (const int columns : {8, 4, 2, 1})
      for (const bool holds_weights : {true, false}) {
        const cuda::DepthwiseConfig config{channels, columns, holds_weights};
        all.push_back({cuda::to_string(config), cuda::tactic_of(config)});
      }
  return all;
}

std::string text_of(const std::vector<NamedTactic>& known, const std::vector<std::byte>& tactic) {
  for (const NamedTactic& each : known)
    if (each.bytes == tactic) return each.text;
  std::string text;
  for (const std::byte each : tactic) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

}  // namespace

double PlannedLayer::bytes() const {
  std::set<uint32_t> slots(planned().inputs.begin(), planned().inputs.end());
  slots.insert(planned().outputs.begin(), planned().outputs.end());
  slots.erase(kNoSlot);
  double bytes = 0;
  for (const uint32_t slot : slots) {
    const Type& type = plan().slots[slot].type;
    bytes +=
        static_cast<double>(count(dims_of(type.shape))) * static_cast<double>(size_of(type.dtype));
  }
  return bytes;
}

PlannedLayer plan_layer(const std::string& graph, const std::string& target) {
  GraphBuildOptions options;
  options.targets = {target};
  PlannedLayer layer{build(parse_graph(graph), options)};
  const auto& steps = layer.plan().steps;
  for (layer.step = 0; layer.step < steps.size(); ++layer.step) {
    const Step& step = steps[layer.step];
    const bool gives_y = step.name == "y" && step.kernel != kTransfer;
    if (gives_y && step.device == 0 && layer.plan().devices.size() > 1) return layer;
  }
  std::string kernels;
  for (const Step& step : steps) kernels += fmt::format(" {} ({})", step.name, step.kernel);
  fail(ErrorCode::kUnsupported,
       fmt::format("no step on the GPU computes layer \"y\"; the plan has{}", kernels));
}

Candidates candidates_of(const PlannedLayer& layer, Device& device) {
  const std::vector<NamedTactic> known = all_tactics();
  const Step& step = layer.planned();
  const StepOperands operands = operands_of(layer.file, layer.plan(), step);
  Request request = request_of(layer.plan(), step, operands, device);
  Candidates found;
  for (const KernelFamily family : cuda_backend().families) {
    for (const KernelEntry& entry : family()) {
      if (entry.op != step.op.index()) continue;
      std::set<std::vector<std::byte>> seen;
      const auto make = [&](std::span<const std::byte> tactic) {
        request.tactic = tactic;
        KernelResult made = entry.make(request);
        if (!made) return made.reason();
        const auto bytes = (*made)->tactic();
        if (seen.insert(bytes).second)
          found.all.push_back({.kernel = std::string(entry.name),
                               .config = text_of(known, bytes),
                               .is_planned = entry.name == step.kernel && bytes == step.tactic,
                               .made = *std::move(made)});
        return std::string();
      };
      const bool is_first = found.all.empty();
      if (const std::string why = make({}); !why.empty()) {
        found.refused.emplace_back(entry.name, why);
        continue;
      }
      if (!is_first && entry.name != step.kernel) continue;
      for (const NamedTactic& each : known) make(each.bytes);
    }
  }
  return found;
}

}  // namespace anneal::bench
