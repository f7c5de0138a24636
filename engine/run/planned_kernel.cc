#include "anneal/engine/run/planned_kernel.h"

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/slot_alignment.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/backend.h"

namespace anneal {
namespace {

std::vector<Operand> slot_operands(const EngineFile& file, const Plan& plan,
                                   const std::vector<uint32_t>& slots) {
  std::vector<Operand> operands;
  operands.reserve(slots.size());
  for (const uint32_t index : slots) {
    if (index == kNoSlot) {
      operands.push_back({.present = false});
      continue;
    }
    const Slot& slot = plan.slots[index];
    const Tensor* const weight =
        slot.storage == Storage::kWeight ? &file.weights[slot.offset] : nullptr;
    operands.push_back(
        {.type = slot.type,
         .strides = slot.strides,
         .constant = weight && is_row_major_weight(slot, *weight) ? weight : nullptr});
  }
  return operands;
}

// The kernel that the step names for the case that its own refuses; null if it names none.
const KernelEntry* runner_up_of(const Step& step, const Device& device) {
  if (step.runner_up.empty()) return nullptr;
  const Backend& backend = device.kind() == DeviceKind::kCuda ? cuda_backend() : cpu_backend();
  const KernelEntry* const entry = find_kernel(backend, step.runner_up);
  const bool is_ours = entry != nullptr && entry->source == KernelSource::kOwn;
  return is_ours && entry->op == step.op.index() ? entry : nullptr;
}

// REQUIRES: a kernel of ours, which runs on memory of any alignment.
KernelChoice with_alignments(KernelChoice chosen, const Plan& plan, const Step& step) {
  if (chosen.kernel)
    know_alignments(*chosen.kernel, alignments_of(plan, step.inputs),
                    alignments_of(plan, step.outputs));
  return chosen;
}

}  // namespace

StepOperands operands_of(const EngineFile& file, const Plan& plan, const Step& step) {
  return {slot_operands(file, plan, step.inputs), slot_operands(file, plan, step.outputs)};
}

Request request_of(const Plan& plan, const Step& step, const StepOperands& operands, Device& device,
                   ThreadTeam* team) {
  return {.op = step.op,
          .epilogues = step.epilogues,
          .op_input_count = static_cast<int>(step.op_input_count),
          .inputs = operands.inputs,
          .outputs = operands.outputs,
          .sizes = *plan.sizes,
          .device = device,
          .tactic = step.tactic,
          .ignore_speed_heuristics = true,
          .team = team};
}

KernelChoice other_kernel(const EngineFile& file, const Plan& plan, const Step& step,
                          Device& device, bool exact, ThreadTeam* team) {
  const StepOperands operands = operands_of(file, plan, step);
  Request request = request_of(plan, step, operands, device, team);
  request.tactic = {};
  request.ignore_speed_heuristics = false;
  if (const KernelEntry* const entry = runner_up_of(step, device)) {
    request.tactic = step.runner_up_tactic;
    KernelResult made = entry->make(request);
    request.tactic = {};
    if (made) return with_alignments({.entry = entry, .kernel = *std::move(made)}, plan, step);
  }
  if (device.kind() != DeviceKind::kCuda)
    return choose_kernel(cpu_backend(), request, {.exact = exact});
  KernelChoice other =
      choose_kernel(cuda_backend(), request, {.exact = exact, .skip = {step.kernel}});
  // There is one kernel of such a layer, with another tactic perhaps.
  if (!other.kernel) other = choose_kernel(cuda_backend(), request, {.exact = exact});
  return with_alignments(std::move(other), plan, step);
}

std::string packed_key(const Plan& plan, const Step& step) {
  ByteWriter key;
  key.text(step.kernel);
  save(key, step.op);
  for (size_t i = 0; i < step.op_input_count; ++i) {
    const uint32_t slot = step.inputs[i];
    const bool is_weight = slot != kNoSlot && plan.slots[slot].storage == Storage::kWeight;
    key.number(is_weight ? static_cast<uint32_t>(plan.slots[slot].offset) : kNoSlot);
  }
  const std::vector<std::byte> bytes = key.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Tensor> ReadyConstants::find(std::string_view form, size_t bytes) {
  const std::string key = key_ + std::string(form);
  const auto found = std::ranges::lower_bound(file_.packed, key, {}, &ReadyConstant::key);
  if (found == file_.packed.end() || found->key != key || found->bytes.bytes().size() != bytes)
    return std::nullopt;
  return found->bytes;
}

}  // namespace anneal
