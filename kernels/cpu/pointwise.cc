// Pointwise by a tape: "cpu.pointwise.tiled".
#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/tape_kernel.h"

namespace anneal::cpu {
namespace {

class TiledPointwise final : public TapeKernel {
 public:
  TiledPointwise(Tape tape, Isa isa) : TapeKernel(std::move(tape), isa) {}

 protected:
  void see(std::span<const TensorView> inputs, std::span<const TensorView>,
           std::vector<TensorView>& seen) const override {
    seen.insert(seen.end(), inputs.begin(), inputs.end());
  }
};

Made make_tiled(const Pointwise& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue that is not part of the program");
  std::string why_not;
  auto tape = Tape::compile(op.program, why_not);
  if (!tape) return refuse(std::move(why_not));
  return {std::make_unique<TiledPointwise>(std::move(*tape), isa_of(request.device)), {}};
}

constexpr KernelEntry kEntries[] = {
    entry<Pointwise, make_tiled>("cpu.pointwise.tiled"),
};

}  // namespace

std::span<const KernelEntry> tiled_pointwise_entries() { return kEntries; }

}  // namespace anneal::cpu
