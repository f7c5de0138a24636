// The answer of the targets to passes: whether they have a kernel of their own for a layer.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/layout.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// The target of a plan: its devices, and them as the places where layers may run.
struct Target {
  std::string name;  // as it was asked for: "cpu:avx2"
  bool is_cuda = false;
  NativeHalves native;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Place> places;
};
// cpu: the backend of the last place. Fails with kInvalidArgument if there is no such target.
Target open_target(const std::string& name, const Backend& cpu, const KernelOptions& kernels = {});

// As a target of a model: the CPU, without passes, on the reference kernels, in f32.
inline constexpr std::string_view kReferenceTarget = "reference";

// The precisions below f32 in which the target always computes products faster than in f32: on GPUs
// all, on CPUs those that it has instructions for. Fails as open_target() does.
std::vector<Precision> fast_precisions(const std::string& target);
// options.precision with types in place of `best`. Fails as open_target() does.
PrecisionOptions resolved_precision(const BuildOptions& options);

// Asks the first place of each target, in either layout. The CPU's reference kernels count as
// refusing. `targets` must outlive the answer.
AskTargets ask_targets(std::vector<const Target*> targets);

}  // namespace anneal
