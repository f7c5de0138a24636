#include "anneal/engine/builder/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/run/memory/activation_memory.h"
#include "anneal/graph/text/text.h"

namespace anneal {
namespace {

constexpr std::string_view kRemedy =
    "raise it (--max-memory, BuildOptions::max_memory) or build for smaller sizes";

void check_values(const Graph& graph, const std::vector<bool>& symbols_of_inputs, uint64_t limit) {
  const SizeTable& sizes = graph.sizes();
  const auto is_input_size = [&](Size size) {
    if (size.known()) return true;
    return !size.is_unknown() && std::ranges::all_of(sizes.symbols_in(size), [&](uint32_t symbol) {
      return symbols_of_inputs[symbol];
    });
  };
  for (const LayerId id : graph.order()) {
    const Layer& layer = graph.layer(id);
    for (const ValueId output : layer.outputs) {
      const Value& value = graph.value(output);
      const Type& type = value.type();
      if (!std::ranges::all_of(type.shape, is_input_size)) continue;
      // Products of sizes that no memory could hold do not fit 64 bits.
      auto bytes = static_cast<double>(size_of(type.dtype));
      for (const Size size : type.shape) bytes *= static_cast<double>(sizes.range(size).opt);
      if (bytes > static_cast<double>(limit))
        fail(ErrorCode::kLimit,
             fmt::format("tensor \"{}\" of layer \"{}\" ({}) is {} and takes {:.0f} bytes, the "
                         "memory limit is {} bytes: {}",
                         value.name, layer.name, to_string(layer.op), to_string(type, sizes), bytes,
                         limit, kRemedy));
    }
  }
  for (const Graph& body : graph.bodies()) check_values(body, symbols_of_inputs, limit);
}

// 0 if a size is open. Products of sizes that no memory could hold do not fit 64 bits.
double known_bytes(const Slot& slot) {
  auto bytes = static_cast<double>(size_of(slot.type.dtype));
  for (const Size size : slot.type.shape)
    bytes *= size.known() ? static_cast<double>(size.value()) : 0;
  return bytes;
}

// tensor "y" of step "relu" (Pointwise), f32[8,4]
std::string slot_text(const Plan& plan, uint32_t slot) {
  std::string text = fmt::format("tensor \"{}\"", plan.slots[slot].name);
  for (const Step& step : plan.steps)
    if (std::ranges::find(step.outputs, slot) != step.outputs.end())
      text += fmt::format(" of step \"{}\" ({})", step.name, to_string(step.op));
  return fmt::format("{}, {}", text, to_string(plan.slots[slot].type, *plan.sizes));
}

}  // namespace

void check_tensor_sizes(const Graph& graph, uint64_t limit) {
  if (limit == 0) return;
  std::vector<bool> symbols = graph.symbols_of_inputs();
  symbols.resize(graph.sizes().symbols().size());
  check_values(graph, symbols, limit);
}

void check_slot_sizes(const Plan& plan) {
  for (uint32_t i = 0; i < plan.slots.size(); ++i)
    if (known_bytes(plan.slots[i]) > static_cast<double>(kMaxArenaBytes))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("{}, is larger than any memory: build for smaller "
                       "sizes, or correct those in the model",
                       slot_text(plan, i)));
}

void check_arena_sizes(const Plan& plan) {
  for (const uint64_t bytes : plan.arena_bytes) {
    if (bytes <= kMaxArenaBytes) continue;
    uint32_t largest = 0;
    for (uint32_t i = 0; i < plan.slots.size(); ++i)
      if (known_bytes(plan.slots[i]) > known_bytes(plan.slots[largest])) largest = i;
    fail(ErrorCode::kInvalidArgument,
         fmt::format("the plan for {} needs {} bytes for activations, which is more than any "
                     "memory; the largest is {}: build for smaller sizes, or correct those in the "
                     "model",
                     plan.target, bytes, slot_text(plan, largest)));
  }
  for (const Plan& body : plan.bodies) check_arena_sizes(body);
}

void check_plan_memory(const Plan& plan, std::span<const Tensor> weights, uint64_t limit) {
  if (limit == 0) return;
  uint64_t weight_bytes = 0;
  for (const Tensor& weight : weights) weight_bytes += weight.bytes().size();
  ActivationMemory memory;
  try {
    memory = activation_memory(plan, weights);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;  // the sizes do not go together
  }
  const uint64_t bytes = weight_bytes + memory.arena_bytes + memory.port_bytes;
  if (bytes <= limit) return;
  fail(ErrorCode::kLimit,
       fmt::format(
           "the plan for {} needs {} bytes: {} for weights, {} for inputs and outputs, {} for "
           "activations{}{}; the memory limit is {} bytes: {}",
           plan.target, bytes, weight_bytes, memory.port_bytes, memory.arena_bytes,
           memory.at_best ? " at the opt sizes" : "",
           memory.fullest_step.empty() ? std::string()
                                       : fmt::format("; {} needs most", memory.fullest_step),
           limit, kRemedy));
}

}  // namespace anneal
