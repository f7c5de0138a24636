#include "anneal/engine/run/pack_weights.h"

#include <map>
#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/run/planned_kernel.h"
#include "anneal/kernels/cpu/backend.h"

namespace anneal {
namespace {

using Gathered = std::map<std::string, Tensor>;

class GatheredConstants final : public PackedConstants {
 public:
  std::optional<Tensor> find(std::string_view, size_t) override { return std::nullopt; }
  void keep(std::string_view form, const Tensor& packed) override {
    kept.emplace_back(form, packed);
  }
  std::vector<std::pair<std::string, Tensor>> kept;
};

void gather(const EngineFile& file, const Plan& plan, Device& cpu, ThreadTeam& team,
            Gathered& packed) {
  for (const Step& step : plan.steps) {
    const KernelEntry* entry = find_kernel(cpu_backend(), step.kernel);
    if (!entry || entry->op != step.op.index()) continue;
    GatheredConstants constants;
    const StepOperands operands = operands_of(file, plan, step);
    Request request = request_of(plan, step, operands, cpu, &team);
    request.packed = &constants;
    if (!entry->make(request)) continue;
    for (auto& [form, tensor] : constants.kept)
      packed.emplace(packed_key(plan, step) + form, std::move(tensor));
  }
  for (const Plan& body : plan.bodies) gather(file, body, cpu, team, packed);
}

// Null if this machine lacks its instructions.
std::unique_ptr<Device> open_cpu(const std::string& target) {
  try {
    return cpu_backend().open(target);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

void pack_weights(EngineFile& file, ThreadTeam& team) {
  Gathered packed;
  for (const Plan& plan : file.plans)
    if (const auto cpu = open_cpu(plan.devices.back())) gather(file, plan, *cpu, team, packed);
  file.packed.clear();
  for (auto& [key, tensor] : packed) file.packed.push_back({key, std::move(tensor)});
}

}  // namespace anneal
