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

// The kernel in the place of the one that the plan names, where that is refused: the runner-up that
// the plan names, or the best other one, with the reasons of those that were tried before it. On a
// GPU it depends on nothing but the plan and the figures of the device, so a builder finds the one
// that loading will need and adds its code. exact: Plan::is_exact of the outermost plan.
KernelChoice other_kernel(const EngineFile& file, const Plan& plan, const Step& step,
                          Device& device, bool exact, ThreadTeam* team = nullptr);

// The key of a step's packed constants, without their form: kernel, op and weights.
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
