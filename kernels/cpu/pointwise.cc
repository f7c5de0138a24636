// Pointwise by a tape: "cpu.pointwise.tiled".
#include <algorithm>

#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/tape_space.h"
#include "anneal/kernels/cpu/workspace.h"

namespace anneal::cpu {
namespace {

struct PreparedTape final : Prepared {
  explicit PreparedTape(TapeSpace made) : space(std::move(made)) {}
  TapeSpace space;
  int64_t tile_rows = 1, tile_columns = 1, tiles_per_row = 1, tiles = 0;
};

class TiledPointwise final : public Kernel {
 public:
  TiledPointwise(Tape tape, Isa isa) : tape_(std::move(tape)), run_tape_(run_tape(isa)) {}

  std::unique_ptr<Prepared> prepare(std::span<const TensorView> inputs,
                                    std::span<const TensorView> outputs,
                                    int threads) const override {
    auto prepared = std::make_unique<PreparedTape>(TapeSpace::of_elements(tape_, inputs, outputs));
    if (count(outputs[0].dims) == 0) return prepared;
    const int64_t rows = prepared->space.rows();
    const int64_t columns = prepared->space.columns();
    prepared->tile_columns = std::min<int64_t>(columns, kTileLanes);
    prepared->tile_rows = std::min(rows, tile_rows(prepared->tile_columns));
    prepared->tiles_per_row = ceil_div(columns, prepared->tile_columns);
    prepared->tiles = ceil_div(rows, prepared->tile_rows) * prepared->tiles_per_row;
    prepared->workspace_bytes = tape_.scratch_bytes() * static_cast<size_t>(threads);
    return prepared;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& prepared = static_cast<const PreparedTape&>(*args.prepared);
    const TapeSpace::Operands operands{args.inputs, args.outputs};
    WorkspaceParts parts(args.workspace, tape_.scratch_bytes());
    const auto run = [&](int64_t begin, int64_t end) {
      const WorkspaceParts::Part part(parts);
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = tile / prepared.tiles_per_row * prepared.tile_rows;
        const int64_t column = tile % prepared.tiles_per_row * prepared.tile_columns;
        prepared.space.run(run_tape_, tape_, operands, row,
                           std::min(row + prepared.tile_rows, prepared.space.rows()), column,
                           std::min(column + prepared.tile_columns, prepared.space.columns()),
                           part.data());
      }
    };
    args.team.for_ranges(prepared.tiles, kGrain, run);
  }

 private:
  static constexpr int64_t kGrain = 16;  // tiles worth a thread of their own
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

  Tape tape_;
  RunTape run_tape_;
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
