#include "anneal/kernels/cpu/program/tape_kernel.h"

#include <algorithm>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {
namespace {

constexpr int64_t kTileGrain = 16;  // tiles worth a thread of their own

struct PreparedTape final : PreparedKernel {
  TapeSpace space;
  int64_t tile_rows = 1, tile_columns = 1, tiles_per_row = 1, tiles = 0;
  std::vector<TensorView> seen, results;
};

}  // namespace

std::unique_ptr<PreparedKernel> TapeKernel::prepare(std::span<const TensorView> inputs,
                                                    std::span<const TensorView> outputs,
                                                    int threads) const {
  auto made = std::make_unique<PreparedTape>();
  PreparedTape& p = *made;
  see(inputs, outputs, p.seen);
  see_results(outputs, p.results);
  p.space = TapeSpace::of_elements(tape_, p.seen, p.results);
  if (count(outputs[0].dims) == 0) return made;
  const int64_t rows = p.space.rows();
  const int64_t columns = p.space.columns();
  p.tile_columns = std::min<int64_t>(columns, kTileLanes);
  p.tile_rows = std::min(rows, tile_rows(p.tile_columns));
  p.tiles_per_row = ceil_div(columns, p.tile_columns);
  p.tiles = ceil_div(rows, p.tile_rows) * p.tiles_per_row;
  p.workspace_bytes = tape_.scratch_bytes() * static_cast<size_t>(threads);
  return made;
}

void TapeKernel::launch(const LaunchArgs& args) const {
  auto& p = static_cast<PreparedTape&>(*args.prepared);
  p.seen.clear();
  see(args.inputs, args.outputs, p.seen);
  p.results.clear();
  see_results(args.outputs, p.results);
  const TapeSpace::Operands operands{p.seen, p.results};
  const auto run = [&](int64_t begin, int64_t end) {
    std::byte* const part = part_of(args.team, args.workspace, tape_.scratch_bytes());
    const auto run_block = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
      const BlockRange block{row, std::min(rows, p.space.rows() - row), column,
                             std::min(columns, p.space.columns() - column)};
      p.space.run(run_tape_, tape_, operands, block, part);
    };
    if (p.tiles_per_row == 1) {
      run_block(begin * p.tile_rows, (end - begin) * p.tile_rows, 0, p.tile_columns);
    } else if (p.space.rows() == 1) {
      run_block(0, 1, begin * p.tile_columns, (end - begin) * p.tile_columns);
    } else {
      for (int64_t tile = begin; tile < end; ++tile)
        run_block(tile / p.tiles_per_row * p.tile_rows, p.tile_rows,
                  tile % p.tiles_per_row * p.tile_columns, p.tile_columns);
    }
  };
  args.team.for_ranges(p.tiles, kTileGrain, run);
}

Program with_epilogue(ProgramBuilder& builder, Reg value, const Request& request, int next) {
  if (request.epilogues.empty() || request.epilogues[0].empty())
    return builder.finish(value, request.outputs[0].type.dtype);
  const Program& epilogue = request.epilogues[0];
  std::vector<Reg> inputs;
  for (size_t i = 0; i < epilogue.inputs().size(); ++i)
    inputs.push_back(i == 0 ? value : builder.input(next++, epilogue.inputs()[i]));
  const std::vector<Reg> regs = builder.inline_program(epilogue, inputs);
  std::vector<std::pair<Reg, DataType>> results;
  for (size_t i = 0; i < regs.size(); ++i)
    results.emplace_back(regs[i], epilogue.results()[i].dtype);
  return builder.finish(results);
}

}  // namespace anneal::cpu
