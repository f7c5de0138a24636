// Pointwise: its program, interpreted one element at a time.
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

void pointwise(const Pointwise& op, const ReferenceArgs& args) {
  run_program(op.program, args.results[0].dims, args.inputs, args.results, args.team);
}

constexpr KernelEntry kPointwiseEntries[] = {
    reference<Pointwise, pointwise>("cpu.pointwise.reference")};

}  // namespace

std::span<const KernelEntry> reference_pointwise_entries() { return kPointwiseEntries; }

}  // namespace anneal::cpu
