// The kernels that a plan names, and their packed constants from the engine file.
#pragma once
#include <string>
#include <vector>

#include "anneal/engine/plan.h"
#include "anneal/kernels/kernel.h"

namespace anneal {

struct StepOperands {
  std::vector<Operand> inputs, outputs;
};
StepOperands operands_of(const EngineFile& file, const Plan& plan, const Step& step);

// For the kernel that the plan names. It refers to all arguments.
Request request_of(const Plan& plan, const Step& step, const StepOperands& operands, Device& device,
                   ThreadTeam* team = nullptr);

// What decides the packed constants of a step but for their form: kernel, op and weights.
std::string packed_key(const Plan& plan, const Step& step);

// Those of a step that are in a file. Refers to both.
class ReadyConstants final : public PackedConstants {
 public:
  ReadyConstants(const EngineFile& file, std::string key) : file_(file), key_(std::move(key)) {}
  std::optional<Tensor> find(std::string_view form, size_t bytes) override;
  void keep(std::string_view, const Tensor&) override {}

 private:
  const EngineFile& file_;
  std::string key_;
};

}  // namespace anneal
