// Pointwise by a table, "cpu.pointwise.table", or a tape, "cpu.pointwise.tiled".
#include "anneal/kernels/byte_table.h"
#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/program/tape_kernel.h"

namespace anneal::cpu {
namespace {

struct PreparedLookup final : PreparedKernel {
  CopyPlan plan;
};

class TablePointwise final : public Kernel {
 public:
  TablePointwise(const ByteTable& table, Isa isa) : table_(table), look_up_(look_up_bytes(isa)) {}
  std::vector<std::byte> tactic() const override { return tactic_of(table_); }
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedLookup>();
    made->plan = CopyPlan(1, outputs[0].dims, inputs[0].strides, outputs[0].strides);
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const ByteLookup lookup{table_.data(), look_up_};
    static_cast<const PreparedLookup*>(args.prepared)
        ->plan.run(args.inputs[0].data, args.outputs[0].data, args.team, &lookup);
  }

 private:
  ByteTable table_;
  LookUpBytes look_up_;
};

KernelResult make_table(const Pointwise& op, const Request& request) {
  const auto table = byte_table(op.program, request);
  if (!table) return refuse(table.reason());
  return std::make_unique<TablePointwise>(*table, isa_of(request.device));
}

class TiledPointwise final : public TapeKernel {
 public:
  TiledPointwise(Tape tape, Isa isa) : TapeKernel(std::move(tape), isa) {}

 protected:
  void see(std::span<const TensorView> inputs, std::span<const TensorView>,
           std::vector<TensorView>& seen) const override {
    seen.insert(seen.end(), inputs.begin(), inputs.end());
  }
};

KernelResult make_tiled(const Pointwise& op, const Request& request) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) return refuse("an epilogue that is not part of the program");
  auto tape = Tape::compile(op.program);
  if (!tape) return refuse(tape.reason());
  return std::make_unique<TiledPointwise>(std::move(*tape), isa_of(request.device));
}

constexpr KernelEntry kPointwiseEntries[] = {
    entry<Pointwise, make_table>("cpu.pointwise.table"),
    entry<Pointwise, make_tiled>("cpu.pointwise.tiled"),
};

}  // namespace

std::span<const KernelEntry> tiled_pointwise_entries() { return kPointwiseEntries; }

}  // namespace anneal::cpu
