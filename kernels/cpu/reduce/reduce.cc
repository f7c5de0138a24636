// Reduce from folds: "cpu.reduce.simd".
#include "anneal/core/integer.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/kernels/cpu/reduce/reduction_input.h"

namespace anneal::cpu {
namespace {

struct PreparedReduce final : PreparedKernel {
  TapeSpace space;
  ReductionSpace fold;
  ReductionInput::Space map;
  std::optional<int64_t> group_stride;
  int64_t column_blocks = 1;
  // In which the elements of a block of columns are folded before their totals are. How many is up
  // to the shape of a group alone, so that neither the team nor the batch changes results.
  int64_t slices = 1;
  bool shares_slices = false;  // with the team: each has Totals of its own then
  size_t totals_at = 0;
};

constexpr int64_t kSliceElements = int64_t{16} << 10, kMostSlices = 8;
constexpr int64_t kFewBlocks = 8;  // of columns, for a team

// The slices of a group of `rows` rows of `columns`, cut into `column_blocks` blocks of columns. A
// power of two, as the sizes of teams mostly are.
int64_t slices_of(int64_t rows, int64_t columns, int64_t column_blocks) {
  constexpr int64_t kLeastRows = 16;
  const int64_t most =
      std::min(std::max<int64_t>(kMostSlices / column_blocks, 2), rows / kLeastRows);
  int64_t slices = 1;
  while (2 * slices <= most && 2 * slices * kSliceElements <= rows * columns) slices *= 2;
  return slices;
}

using Totals = double[ReductionSpace::kColumns];

struct ReduceWorkspace {
  float input[ReductionSpace::kBlock];
  Totals totals, of_slice;
  float part[ReductionSpace::kColumns];
};

class SimdReduce final : public Kernel {
 public:
  SimdReduce(const Reduce& op, const ReductionSpace::Axes& axes, const Request& request,
             std::optional<ReductionInput> map, Epilogue epilogue)
      : op_(op),
        axes_(axes),
        loops_(reduction_loops(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        map_(std::move(map)),
        epilogue_(std::move(epilogue)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedReduce>();
    PreparedReduce& p = *made;
    if (map_) p.map = map_->space(inputs, axes_);
    p.fold = ReductionSpace(map_ ? p.map.whole : inputs[0], axes_);
    TapeSpace::Axes axes;
    for (const int64_t axis : p.fold.kept_axes()) axes.rows.push_back(of_output(axis));
    if (p.fold.column_axis() >= 0) axes.columns = static_cast<int>(of_output(p.fold.column_axis()));
    p.space = epilogue_.space(inputs, outputs, axes);
    if (count(outputs[0].dims) == 0) return made;
    p.group_stride = p.fold.group_stride(map_ ? nullptr : &inputs[0]);
    p.column_blocks = ceil_div(p.fold.columns(), ReductionSpace::kColumns);
    if (p.fold.column_axis() >= 0 && !map_)
      p.slices = slices_of(p.fold.group_size(), p.fold.columns(), p.column_blocks);
    const int64_t blocks = p.fold.groups() * p.column_blocks;
    p.shares_slices = p.slices > 1 && threads > 1 && blocks < kFewBlocks;
    p.totals_at = part_bytes() * static_cast<size_t>(threads);
    p.workspace_bytes = p.totals_at;
    if (p.shares_slices)
      p.workspace_bytes += static_cast<size_t>(blocks * p.slices) * sizeof(Totals);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    auto& p = static_cast<PreparedReduce&>(*args.prepared);
    if (map_) map_->aim(p.map, args.inputs);
    if (p.space.rows() * p.space.columns() == 0) return;
    if (p.fold.column_axis() >= 0)
      return p.shares_slices ? shared_columns(p, args) : columns(p, args);
    const int64_t grain = 1 + ReductionSpace::kBlock / (p.fold.group_size() + 1);
    args.team.for_ranges(p.fold.groups(), grain, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace, part_bytes());
      for (int64_t group = begin; group < end; group += ReductionSpace::kColumns)
        rows(p, args, group, std::min(group + ReductionSpace::kColumns, end), part);
    });
  }

 private:
  size_t part_bytes() const {
    return cache_aligned(sizeof(ReduceWorkspace)) +
           std::max(epilogue_.scratch_bytes(), map_ ? map_->scratch_bytes() : 0);
  }
  // Runs body(source) with the folded values.
  template <class Body>
  void with_source(const PreparedReduce& p, const LaunchArgs& args, std::byte* part,
                   const Body& body) const {
    float* const buffer = reinterpret_cast<ReduceWorkspace*>(part)->input;
    const ReductionSpace::Source plain{args.inputs[0], load_, buffer};
    if (!map_) return body(plain);
    map_->with_source(p.map, plain, tape_scratch(part), body);
  }
  std::byte* tape_scratch(std::byte* part) const {
    return part + cache_aligned(sizeof(ReduceWorkspace));
  }

  // Where an axis that stays is in the output.
  int64_t of_output(int64_t axis) const {
    if (op_.keepdims) return axis;
    int64_t before = 0;
    for (int64_t i = 0; i < axis; ++i) before += axes_[static_cast<size_t>(i)] ? 1 : 0;
    return axis - before;
  }

  Reduction fold() const {
    switch (op_.kind) {
      case ReduceKind::kProd:
        return Reduction::kProd;
      case ReduceKind::kMax:
        return Reduction::kMax;
      case ReduceKind::kMin:
        return Reduction::kMin;
      default:
        return Reduction::kSum;
    }
  }
  float result(double total, int64_t elements) const {
    return static_cast<float>(op_.kind == ReduceKind::kMean ? total / static_cast<double>(elements)
                                                            : total);
  }

  void rows(const PreparedReduce& p, const LaunchArgs& args, int64_t first, int64_t end,
            std::byte* part) const {
    auto& memory = *reinterpret_cast<ReduceWorkspace*>(part);
    with_source(p, args, part, [&](const ReductionSpace::Source& source) {
      if (p.group_stride) {
        const int64_t n = p.fold.group_size();
        p.fold.for_groups(source, *p.group_stride, first, end,
                          [&](const float* x, int64_t begin, int64_t last, int64_t stride) {
                            loops_.rows(fold(), x, last - begin, n, stride,
                                        memory.totals + (begin - first));
                          });
        for (int64_t i = 0; i < end - first; ++i) memory.part[i] = result(memory.totals[i], n);
        return;
      }
      for (int64_t group = first; group < end; ++group) {
        double total = start_of(fold());
        p.fold.for_rows(source, group, [&](const float* x, int64_t rows, int64_t columns, int64_t) {
          total = combined(fold(), total, loops_.row(fold(), x, rows * columns, 0));
        });
        memory.part[group - first] = result(total, p.fold.group_size());
      }
    });
    epilogue_.run(p.space, args, {memory.part, 1}, {first, end - first, 0, 1}, tape_scratch(part));
  }

  void columns(const PreparedReduce& p, const LaunchArgs& args) const {
    args.team.for_ranges(p.fold.groups() * p.column_blocks, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace, part_bytes());
      auto& memory = *reinterpret_cast<ReduceWorkspace*>(part);
      for (int64_t block = begin; block < end; ++block) {
        if (p.slices == 1 && reduce_at_once(p, args, block, part)) continue;
        reduce_columns(p, args, block, 0, part, memory.totals);
        for (int64_t slice = 1; slice < p.slices; ++slice) {
          reduce_columns(p, args, block, slice, part, memory.of_slice);
          combine(fold(), memory.of_slice, count_of(p, block), memory.totals);
        }
        finish_columns(p, args, block, part, memory.totals);
      }
    });
  }

  // Slices hold the blocks, so that each thread reads what it wrote where it was given a part of
  // the rows before.
  void shared_columns(const PreparedReduce& p, const LaunchArgs& args) const {
    const int64_t blocks = p.fold.groups() * p.column_blocks;
    auto* const totals = reinterpret_cast<Totals*>(args.workspace + p.totals_at);
    args.team.for_ranges(blocks * p.slices, 1, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace, part_bytes());
      for (int64_t i = begin; i < end; ++i)
        reduce_columns(p, args, i % blocks, i / blocks, part, totals[i]);
    });
    for (int64_t block = 0; block < blocks; ++block) {
      double* const all = totals[block];
      for (int64_t slice = 1; slice < p.slices; ++slice)
        combine(fold(), totals[slice * blocks + block], count_of(p, block), all);
      finish_columns(p, args, block, args.workspace, all);
    }
  }

  // Blocks are numbered through the groups.
  static int64_t first_of(const PreparedReduce& p, int64_t block) {
    return block % p.column_blocks * ReductionSpace::kColumns;
  }
  static int64_t count_of(const PreparedReduce& p, int64_t block) {
    return std::min(ReductionSpace::kColumns, p.fold.columns() - first_of(p, block));
  }

  // Groups of as few rows as one block has, whose folds are the totals. False: nothing is done.
  bool reduce_at_once(const PreparedReduce& p, const LaunchArgs& args, int64_t block,
                      std::byte* part) const {
    auto& memory = *reinterpret_cast<ReduceWorkspace*>(part);
    const int64_t count = count_of(p, block), elements = p.fold.group_size();
    if (!p.fold.has_one_block()) return false;
    const int64_t group = block / p.column_blocks, first = first_of(p, block);
    std::optional<RegisterEpilogue> direct;  // the output, if results need no epilogue
    if (epilogue_.is_copy())
      direct = epilogue_.finish([](DataType storage) { return storage == DataType::kF32; }, p.space,
                                args, group, first);
    float* const results = direct ? reinterpret_cast<float*>(direct->y) : memory.part;
    with_source(p, args, part, [&](const ReductionSpace::Source& source) {
      p.fold.for_columns(source, group, first, count, [&](const ReductionBlock& rows, int64_t) {
        loops_.columns(fold(), rows, nullptr, results);
      });
    });
    for (int64_t i = 0; i < count && op_.kind == ReduceKind::kMean; ++i)
      results[i] = result(results[i], elements);
    if (!direct) run_epilogue(p, args, block, part);
    return true;
  }

  void reduce_columns(const PreparedReduce& p, const LaunchArgs& args, int64_t block, int64_t slice,
                      std::byte* part, double* totals) const {
    auto& memory = *reinterpret_cast<ReduceWorkspace*>(part);
    const int64_t count = count_of(p, block);
    std::fill(totals, totals + count, double{start_of(fold())});
    with_source(p, args, part, [&](const ReductionSpace::Source& source) {
      p.fold.for_columns(source, block / p.column_blocks, first_of(p, block), count,
                         [&](const ReductionBlock& rows, int64_t) {
                           loops_.columns(fold(), rows, nullptr, memory.part);
                           combine(fold(), memory.part, count, totals);
                         },
                         {slice, p.slices});
    });
  }

  void finish_columns(const PreparedReduce& p, const LaunchArgs& args, int64_t block,
                      std::byte* part, const double* totals) const {
    auto& memory = *reinterpret_cast<ReduceWorkspace*>(part);
    const int64_t count = count_of(p, block);
    for (int64_t i = 0; i < count; ++i) memory.part[i] = result(totals[i], p.fold.group_size());
    run_epilogue(p, args, block, part);
  }

  void run_epilogue(const PreparedReduce& p, const LaunchArgs& args, int64_t block,
                    std::byte* part) const {
    const float* const results = reinterpret_cast<ReduceWorkspace*>(part)->part;
    const int64_t count = count_of(p, block);
    epilogue_.run(p.space, args, {results, count},
                  {block / p.column_blocks, 1, first_of(p, block), count}, tape_scratch(part));
  }

  Reduce op_;
  ReductionSpace::Axes axes_;
  ReductionLoops loops_;
  LoadBlock load_;
  std::optional<ReductionInput> map_;
  Epilogue epilogue_;
};

// The number of axes of the folded tensor.
int rank_of(const Reduce& op, const Request& request) {
  int rank = request.inputs[0].type.shape.rank();
  for (int i = 2; !op.map.empty() && i < request.op_input_count; ++i)
    rank = std::max(rank, request.inputs[static_cast<size_t>(i)].type.shape.rank());
  return rank;
}

KernelResult make_simd(const Reduce& op, const Request& request) {
  const Type& x = request.inputs[0].type;
  std::optional<ReductionInput> map;
  if (!op.map.empty()) {
    auto made = ReductionInput::make(op.map, 2, request);
    if (!made) return refuse(made.reason());
    map = *std::move(made);
  } else if (x.dtype != DataType::kF32 && x.dtype != DataType::kF16 && x.dtype != DataType::kBF16) {
    return refuse("only f32, f16 and bf16");
  }
  ReductionSpace::Axes axes{};
  if (request.op_input_count > 1 && request.inputs[1].present) {
    const Tensor* constant = request.inputs[1].constant;
    if (constant == nullptr) return refuse("axes that are not constant");
    const int rank = rank_of(op, request);
    for (int64_t i = 0; i < constant->count(); ++i) {
      const int64_t axis = load_integer(kernel_view(*constant), i);
      if (axis < -rank || axis >= rank) return refuse("axes that the input does not have");
      axes[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
    }
  }
  if (std::none_of(axes.begin(), axes.end(), [](bool folded) { return folded; }))
    return refuse("no axes");
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<SimdReduce>(op, axes, request, std::move(map), std::move(*epilogue));
}

constexpr KernelEntry kReduceEntries[] = {
    entry<Reduce, make_simd>("cpu.reduce.simd"),
};

}  // namespace

std::span<const KernelEntry> simd_reduce_entries() { return kReduceEntries; }

}  // namespace anneal::cpu
