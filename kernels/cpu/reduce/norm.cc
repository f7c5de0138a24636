// Softmax and Normalize from folds: "cpu.softmax.simd", "cpu.normalize.simd".
#include <algorithm>
#include <cmath>

#include "anneal/core/integer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/kernels/cpu/reduce/reduction_input.h"

namespace anneal::cpu {
namespace {

struct PreparedNorm final : PreparedKernel {
  TapeSpace space;
  ReductionSpace fold;
  ReductionInput::Space map;
  int64_t block_columns = ReductionSpace::kColumns, column_blocks = 1;
  bool joined = true;  // columns of several groups are one axis of the epilogue's space
  std::optional<int64_t> x_stride, y_stride;  // of groups() and of groups written in place
};

// With axis `axis` and the one before it as one; false if they are not one in memory.
bool join_axes(std::vector<TensorView>& views, int axis, int rank) {
  for (TensorView& view : views) {
    const int inner = axis - (rank - view.dims.rank());
    if (inner < 1) {
      if (inner == 0 && view.dims[0] != 1) return false;
      if (inner < 0) continue;
    } else {
      const int64_t outer_size = view.dims[inner - 1], size = view.dims[inner];
      if ((outer_size == 1) != (size == 1)) return false;
      if (size > 1 && view.strides[inner - 1] != view.strides[inner] * size) return false;
    }
    TensorView joined{view.dtype, {}, {}, view.data};
    for (int i = 0; i < view.dims.rank(); ++i) {
      if (i == inner - 1) continue;
      joined.dims.push_back(i == inner && i > 0 ? view.dims[i - 1] * view.dims[i] : view.dims[i]);
      joined.strides.push_back(view.strides[i]);
    }
    view = joined;
  }
  return true;
}

// The memory of a thread.
struct NormWorkspace {
  float input[ReductionSpace::kBlock];
  float output[ReductionSpace::kBlock];
  double totals[ReductionSpace::kColumns], start[ReductionSpace::kColumns];
  float part[ReductionSpace::kColumns];
  float shift[ReductionSpace::kColumns], scale[ReductionSpace::kColumns],
      offset[ReductionSpace::kColumns];
};

// y = map(x - shift) with numbers found for each group: of its maximum and the sum of its
// exponentials, or of its mean and variance.
struct Recipe {
  ReductionSpace::Axes axes{};
  bool softmax = false;
  bool log = false;
  bool subtract_mean = true;
  float epsilon = 0;
  Map map() const { return softmax && !log ? Map::kExp : Map::kAffine; }
};

class NormKernel final : public Kernel {
 public:
  NormKernel(const Recipe& recipe, const Request& request, std::optional<ReductionInput> map,
             Epilogue epilogue)
      : recipe_(recipe),
        loops_(reduction_loops(isa_of(request.device))),
        load_(load_block(isa_of(request.device))),
        map_(std::move(map)),
        epilogue_(std::move(epilogue)),
        counts_(std::ranges::any_of(request.epilogues, &Program::uses_index)) {}

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedNorm>();
    PreparedNorm& p = *made;
    if (map_) p.map = map_->space(inputs, recipe_.axes);
    p.fold = ReductionSpace(map_ ? p.map.whole : inputs[0], recipe_.axes, !recipe_.softmax);
    if (p.fold.columns_per_group() > 1) {
      prepare_groups(p, inputs, outputs);
      p.workspace_bytes = part_bytes() * static_cast<size_t>(threads);
      return made;
    }
    TapeSpace::Axes axes{p.fold.kept_axes(), p.fold.column_axis()};
    Dims folded = p.fold.reduced_axes();
    for (int i = 0; i < folded.rank(); ++i) {
      if (axes.columns < 0 && i + 1 == folded.rank()) {
        axes.columns = static_cast<int>(folded[i]);
        break;
      }
      axes.rows.push_back(folded[i]);
    }
    p.space = epilogue_.space(inputs, outputs, axes);
    if (count(outputs[0].dims) == 0) return made;
    p.column_blocks = ceil_div(p.fold.columns(), p.block_columns);
    p.x_stride = p.fold.group_stride(map_ ? nullptr : &inputs[0]);
    if (epilogue_.is_copy() && outputs[0].dtype == DataType::kF32)
      p.y_stride = p.fold.row_stride(outputs[0]);
    p.workspace_bytes = part_bytes() * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    auto& p = static_cast<PreparedNorm&>(*args.prepared);
    if (map_) map_->aim(p.map, args.inputs);
    if (p.space.rows() * p.space.columns() == 0) return;
    const int64_t grain = 1 + ReductionSpace::kBlock / (p.fold.group_size() + 1);
    if (p.fold.column_axis() >= 0) {
      args.team.for_ranges(p.fold.groups() * p.column_blocks, 1, [&](int64_t begin, int64_t end) {
        std::byte* const part = part_of(args.team, args.workspace, part_bytes());
        with_source(p, args, part, [&](const ReductionSpace::Source& source) {
          for (int64_t i = begin; i < end; ++i)
            columns(p, args, i / p.column_blocks, i % p.column_blocks, part, source);
        });
      });
      return;
    }
    args.team.for_ranges(p.fold.groups(), grain, [&](int64_t begin, int64_t end) {
      std::byte* const part = part_of(args.team, args.workspace, part_bytes());
      with_source(p, args, part, [&](const ReductionSpace::Source& source) {
        if (p.x_stride) return groups(p, args, begin, end, part, source);
        for (int64_t group = begin; group < end; ++group) rows(p, args, group, part, source);
      });
    });
  }

 private:
  // For groups of several columns each; a block has whole groups.
  void prepare_groups(PreparedNorm& p, std::span<const TensorView> inputs,
                      std::span<const TensorView> outputs) const {
    const int columns = p.fold.column_axis(), rank = outputs[0].dims.rank();
    std::vector<TensorView> ins(inputs.begin(), inputs.end()), outs(outputs.begin(), outputs.end());
    p.joined = !counts_ && join_axes(ins, columns, rank) && join_axes(outs, columns, rank);
    TapeSpace::Axes axes{{}, p.joined ? columns - 1 : columns};
    const auto add_row = [&](int64_t axis) {
      axes.rows.push_back(p.joined && axis > columns ? axis - 1 : axis);
    };
    for (const int64_t axis : p.fold.kept_axes().span()) add_row(axis);
    if (!p.joined) add_row(columns - 1);
    for (const int64_t axis : p.fold.reduced_axes().span()) add_row(axis);
    p.space = p.joined ? epilogue_.space(ins, outs, axes) : epilogue_.space(inputs, outputs, axes);
    p.block_columns =
        ReductionSpace::kColumns / p.fold.columns_per_group() * p.fold.columns_per_group();
    p.column_blocks = ceil_div(p.fold.columns(), p.block_columns);
  }
  size_t part_bytes() const {
    return cache_aligned(sizeof(NormWorkspace)) +
           std::max(epilogue_.scratch_bytes(), map_ ? map_->scratch_bytes() : 0);
  }
  // Runs body(source) with the folded values.
  template <class Body>
  void with_source(const PreparedNorm& p, const LaunchArgs& args, std::byte* part,
                   const Body& body) const {
    float* const buffer = reinterpret_cast<NormWorkspace*>(part)->input;
    const ReductionSpace::Source plain{args.inputs[0], load_, buffer};
    if (!map_) return body(plain);
    map_->with_source(p.map, plain, tape_scratch(part), body);
  }
  std::byte* tape_scratch(std::byte* part) const {
    return part + cache_aligned(sizeof(NormWorkspace));
  }

  // From the folded numbers of a group: its maximum and the sum of its exponentials, or its mean
  // and the sum of squares around the mean as f32 has it.
  AffineNumbers numbers(double first, double second, int64_t elements) const {
    if (!recipe_.softmax) return normalization(first, second, elements, recipe_.epsilon);
    const auto shift = static_cast<float>(first);
    if (recipe_.log) return {shift, 1, static_cast<float>(-std::log(second))};
    return {shift, static_cast<float>(1 / second), 0};
  }

  double reduce_group(const PreparedNorm& p, const ReductionSpace::Source& source, int64_t group,
                      Reduction fold, float shift) const {
    double total = start_of(fold);
    p.fold.for_rows(source, group, [&](const float* x, int64_t rows, int64_t columns, int64_t) {
      total = combined(fold, total, loops_.row(fold, x, rows * columns, shift));
    });
    return total;
  }

  // Differences from one of the elements keep their digits where the mean is large.
  double mean_of(const PreparedNorm& p, const ReductionSpace::Source& source, int64_t group) const {
    float near = 0;
    double total = 0;
    p.fold.for_rows(source, group,
                    [&](const float* x, int64_t rows, int64_t columns, int64_t element) {
                      if (element == 0) near = x[0];
                      total += loops_.row(Reduction::kDifferences, x, rows * columns, near);
                    });
    return near + total / static_cast<double>(p.fold.group_size());
  }

  // As rows(), for small groups.
  void groups(const PreparedNorm& p, const LaunchArgs& args, int64_t begin, int64_t end,
              std::byte* part, const ReductionSpace::Source& source) const {
    auto& memory = *reinterpret_cast<NormWorkspace*>(part);
    NormRows rows{.n = p.fold.group_size(),
                  .is_softmax = recipe_.softmax,
                  .is_log = recipe_.log,
                  .subtract_mean = recipe_.subtract_mean,
                  .epsilon = recipe_.epsilon};
    rows.out_stride = p.y_stride.value_or(rows.n);
    const int64_t width = p.fold.last_size(), rows_of_group = rows.n / width;
    p.fold.for_groups(
        source, *p.x_stride, begin, end,
        [&](const float* x, int64_t first, int64_t last, int64_t stride) {
          const int64_t step = p.y_stride ? last - first : p.fold.groups_of_block();
          rows.x_stride = stride;
          for (int64_t group = first; group < last; group += step) {
            rows.x = x + (group - first) * stride;
            rows.out =
                p.y_stride ? args.outputs[0].as<float>() + group * *p.y_stride : memory.output;
            rows.rows = std::min(step, last - group);
            loops_.norm_rows(rows);
            if (p.y_stride) continue;
            epilogue_.run(p.space, args, {memory.output, width},
                          {group * rows_of_group, rows.rows * rows_of_group, 0, width},
                          tape_scratch(part));
          }
        });
  }

  void rows(const PreparedNorm& p, const LaunchArgs& args, int64_t group, std::byte* part,
            const ReductionSpace::Source& source) const {
    float* const out = reinterpret_cast<NormWorkspace*>(part)->output;
    const int64_t elements = p.fold.group_size();
    const int64_t width = p.fold.last_size(), rows_of_group = elements / width;
    double start = 0;
    if (recipe_.softmax) {
      start = reduce_group(p, source, group, Reduction::kMax, 0);
    } else if (recipe_.subtract_mean) {
      start = mean_of(p, source, group);
    }
    const auto shift = static_cast<float>(start);
    const Reduction second = recipe_.softmax ? Reduction::kExp : Reduction::kSquares;
    const AffineNumbers n = numbers(start, reduce_group(p, source, group, second, shift), elements);
    p.fold.for_rows(
        source, group, [&](const float* x, int64_t rows, int64_t columns, int64_t element) {
          loops_.map_row(recipe_.map(), x, rows * columns, n.shift, n.scale, n.offset, out);
          epilogue_.run(p.space, args, {out, columns},
                        {group * rows_of_group + element / width, rows, element % width, columns},
                        tape_scratch(part));
        });
  }

  // Leaves a result for each column in memory.totals.
  void reduce_columns(const PreparedNorm& p, const ReductionSpace::Source& source,
                      NormWorkspace& memory, int64_t group, int64_t column, int64_t count,
                      Reduction fold) const {
    std::fill(memory.totals, memory.totals + count, double{start_of(fold)});
    p.fold.for_columns(source, group, column, count,
                       [&](const ReductionBlock& block, int64_t element) {
                         if (fold == Reduction::kDifferences && element == 0)
                           std::copy(block.x, block.x + count, memory.shift);
                         loops_.columns(fold, block, memory.shift, memory.part);
                         combine(fold, memory.part, count, memory.totals);
                       });
  }

  // Each column's number becomes that of its group: the sum, or the mean, of its columns'.
  static void combine_columns(const PreparedNorm& p, double* numbers, int64_t count, bool mean) {
    const int64_t width = p.fold.columns_per_group();
    for (int64_t first = 0; width > 1 && first < count; first += width) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += numbers[first + i];
      if (mean) sum /= static_cast<double>(width);
      std::fill(numbers + first, numbers + first + width, sum);
    }
  }

  // block: the rows are elements of the group.
  void store_columns(const PreparedNorm& p, const LaunchArgs& args, const NormWorkspace& memory,
                     int64_t group, const BlockRange& block, std::byte* scratch) const {
    const int64_t elements = p.fold.group_size(), width = p.fold.columns_per_group();
    if (p.joined)
      return epilogue_.run(p.space, args, {memory.output, block.columns},
                           {group * elements + block.row, block.rows, block.column, block.columns},
                           scratch);
    const int64_t outer = p.fold.columns() / width;
    for (int64_t first = 0; first < block.columns; first += width) {
      const int64_t number = group * outer + (block.column + first) / width;
      epilogue_.run(p.space, args, {memory.output + first, block.columns},
                    {number * elements + block.row, block.rows, 0, width}, scratch);
    }
  }

  void columns(const PreparedNorm& p, const LaunchArgs& args, int64_t group, int64_t block_index,
               std::byte* part, const ReductionSpace::Source& source) const {
    auto& memory = *reinterpret_cast<NormWorkspace*>(part);
    const int64_t column = block_index * p.block_columns;
    const int64_t count = std::min(p.block_columns, p.fold.columns() - column);
    const int64_t elements = p.fold.group_size();
    std::fill(memory.shift, memory.shift + count, 0.0f);
    std::fill(memory.start, memory.start + count, 0.0);
    if (recipe_.softmax) {
      reduce_columns(p, source, memory, group, column, count, Reduction::kMax);
      std::copy(memory.totals, memory.totals + count, memory.start);
    } else if (recipe_.subtract_mean) {
      reduce_columns(p, source, memory, group, column, count, Reduction::kDifferences);
      for (int64_t i = 0; i < count; ++i)
        memory.start[i] = memory.shift[i] + memory.totals[i] / static_cast<double>(elements);
      combine_columns(p, memory.start, count, true);
    }
    for (int64_t i = 0; i < count; ++i) memory.shift[i] = static_cast<float>(memory.start[i]);
    reduce_columns(p, source, memory, group, column, count,
                   recipe_.softmax ? Reduction::kExp : Reduction::kSquares);
    combine_columns(p, memory.totals, count, false);
    for (int64_t i = 0; i < count; ++i) {
      const AffineNumbers n =
          numbers(memory.start[i], memory.totals[i], elements * p.fold.columns_per_group());
      memory.scale[i] = n.scale;
      memory.offset[i] = n.offset;
    }
    p.fold.for_columns(source, group, column, count,
                       [&](const ReductionBlock& block, int64_t element) {
                         loops_.map_columns(recipe_.map(), block, memory.shift, memory.scale,
                                            memory.offset, memory.output);
                         store_columns(p, args, memory, group, {element, block.rows, column, count},
                                       tape_scratch(part));
                       });
  }

  Recipe recipe_;
  ReductionLoops loops_;
  LoadBlock load_;
  std::optional<ReductionInput> map_;
  Epilogue epilogue_;
  bool counts_;  // along axes of the output
};

KernelResult make(const Recipe& recipe, const Request& request, const Program& applied = {}) {
  const DataType x = request.inputs[0].type.dtype;
  std::optional<ReductionInput> map;
  if (!applied.empty()) {
    auto made = ReductionInput::make(applied, 1, request);
    if (!made) return refuse(made.reason());
    map = *std::move(made);
  } else if (x != DataType::kF32 && x != DataType::kF16 && x != DataType::kBF16) {
    return refuse("only f32, f16 and bf16");
  }
  if (std::none_of(recipe.axes.begin(), recipe.axes.end(), [](bool folded) { return folded; }))
    return refuse("no axes");
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<NormKernel>(recipe, request, std::move(map), std::move(*epilogue));
}

KernelResult make_softmax(const Softmax& op, const Request& request) {
  Recipe recipe;
  recipe.softmax = true;
  recipe.log = op.log;
  recipe.axes[static_cast<size_t>(op.axis)] = true;
  return make(recipe, request, op.map);
}

KernelResult make_normalize(const Normalize& op, const Request& request) {
  Recipe recipe;
  recipe.subtract_mean = op.subtract_mean;
  recipe.epsilon = op.epsilon;
  for (const int64_t axis : op.axes) recipe.axes[static_cast<size_t>(axis)] = true;
  return make(recipe, request);
}

constexpr KernelEntry kNormEntries[] = {
    entry<Softmax, make_softmax>("cpu.softmax.simd"),
    entry<Normalize, make_normalize>("cpu.normalize.simd"),
};

}  // namespace

std::span<const KernelEntry> simd_norm_entries() { return kNormEntries; }

}  // namespace anneal::cpu
