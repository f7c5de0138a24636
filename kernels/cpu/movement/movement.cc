// Ops that copy elements, by copy plans: "cpu.reshape.copy", "cpu.transpose.blocked",
// "cpu.slice.copy", "cpu.expand.copy", "cpu.tile.copy", "cpu.concat.copy", "cpu.gather.copy",
// "cpu.reverse_sequence.copy". Where an op is a view of its input, an epilogue runs as a tape on
// that view.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/copy_plan.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/movement/single_elements.h"
#include "anneal/kernels/cpu/movement/tuples.h"
#include "anneal/kernels/cpu/program/tape_kernel.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// The output as a view of the input: each of its axes is one of x, from `start` on, in steps.
struct ViewOfInput {
  Dims axes, starts, steps;

  static ViewOfInput all(int rank) {
    ViewOfInput look;
    for (int axis = 0; axis < rank; ++axis) look.add(axis);
    return look;
  }
  void add(int64_t axis) {
    axes.push_back(axis);
    starts.push_back(0);
    steps.push_back(1);
  }

  TensorView operator()(const TensorView& x, const Dims& out) const {
    TensorView view{x.dtype, {}, {}, x.data};
    int64_t offset = 0;
    const int missing = out.rank() - axes.rank();
    for (int i = 0; i < axes.rank(); ++i) {
      const int axis = static_cast<int>(axes[i]);
      const int64_t size = x.dims[axis];
      int64_t start = starts[i] < 0 ? starts[i] + size : starts[i];
      start = std::clamp<int64_t>(start, 0, std::max<int64_t>(steps[i] < 0 ? size - 1 : size, 0));
      view.dims.push_back(out[missing + i]);
      const bool repeated = size == 1 && out[missing + i] != 1;
      // One element makes no step, whose product with the stride may be larger than 64 bits.
      const int64_t step = out[missing + i] > 1 ? steps[i] : 1;
      view.strides.push_back(repeated ? 0 : x.strides[axis] * step);
      if (!repeated && out[missing + i] > 0) offset += start * x.strides[axis];
    }
    if (view.data != nullptr) view.data += offset * static_cast<int64_t>(size_of(x.dtype));
    return view;
  }
};

Dims broadcast_strides(const TensorView& view, const Dims& out) {
  Dims strides = Dims::filled(out.rank(), 0);
  const int missing = out.rank() - view.dims.rank();
  for (int axis = 0; axis < view.dims.rank(); ++axis) strides[missing + axis] = view.strides[axis];
  return strides;
}

struct PreparedCopy final : PreparedKernel {
  CopyPlan plan;
};

class CopyOfView final : public Kernel {
 public:
  explicit CopyOfView(ViewOfInput look) : look_(look) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedCopy>();
    const TensorView view = look_(inputs[0], outputs[0].dims);
    made->plan = CopyPlan(size_of(view.dtype), outputs[0].dims,
                          broadcast_strides(view, outputs[0].dims), outputs[0].strides);
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& plan = static_cast<const PreparedCopy&>(*args.prepared).plan;
    const std::byte* const from = look_(args.inputs[0], args.outputs[0].dims).data;
    if (from != args.outputs[0].data) plan.run(from, args.outputs[0].data, args.team);
  }

 private:
  ViewOfInput look_;
};

class TapeOfView final : public TapeKernel {
 public:
  TapeOfView(Tape tape, ViewOfInput look, const Request& request)
      : TapeKernel(std::move(tape), isa_of(request.device)),
        look_(look),
        op_inputs_(static_cast<size_t>(request.op_input_count)) {}

 protected:
  void see(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
           std::vector<TensorView>& seen) const override {
    seen.push_back(look_(inputs[0], outputs[0].dims));
    seen.insert(seen.end(), inputs.begin() + static_cast<int64_t>(op_inputs_), inputs.end());
  }

 private:
  ViewOfInput look_;
  size_t op_inputs_;
};

bool has_epilogue(const Request& request) {
  return !request.epilogues.empty() && !request.epilogues[0].empty();
}

KernelResult make_view(const ViewOfInput& look, const Request& request) {
  if (!has_epilogue(request)) return std::make_unique<CopyOfView>(look);
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  const Program& program = request.epilogues[0];
  const DataType stored = request.inputs[0].type.dtype;
  if (program.inputs().empty() || register_type(program.inputs()[0]) != register_type(stored))
    return refuse("an epilogue that does not take the input's elements");
  auto tape = Tape::compile(program, stored);
  if (!tape) return refuse(tape.reason());
  return std::make_unique<TapeOfView>(std::move(*tape), look, request);
}

// An identity copies between layouts; where its output is the very view of its input it has nothing
// to do.
KernelResult make_copy(const Pointwise& op, const Request& request) {
  if (!op.program.is_identity()) return refuse("a program that computes something");
  if (has_epilogue(request)) return refuse("an epilogue");
  return make_view(ViewOfInput::all(request.inputs[0].type.shape.rank()), request);
}

KernelResult make_transpose(const Transpose& op, const Request& request) {
  ViewOfInput look;
  for (const int64_t axis : op.permutation) look.add(axis);
  return make_view(look, request);
}

KernelResult make_expand(const Expand&, const Request& request) {
  return make_view(ViewOfInput::all(request.inputs[0].type.shape.rank()), request);
}

KernelResult make_slice(const Slice&, const Request& request) {
  for (const int i : {1, 3, 4})
    if (request.inputs[i].constant == nullptr)
      return refuse("starts, axes or steps that are not constant");
  const TensorView starts = kernel_view(*request.inputs[1].constant);
  const TensorView axes = kernel_view(*request.inputs[3].constant);
  const TensorView steps = kernel_view(*request.inputs[4].constant);
  const int rank = request.inputs[0].type.shape.rank();
  ViewOfInput look = ViewOfInput::all(rank);
  for (int64_t i = 0; i < count(starts.dims); ++i) {
    const int64_t axis = load_integer(axes, i);
    if (axis < -rank || axis >= rank) return refuse("axes that the input does not have");
    const int a = static_cast<int>(axis < 0 ? axis + rank : axis);
    look.starts[a] = load_integer(starts, i);
    look.steps[a] = load_integer(steps, i);
  }
  return make_view(look, request);
}

struct PreparedReshape final : PreparedKernel {
  CopyPlan first, second;  // second: from the workspace, where neither side is row-major
  bool has_second = false;
};

class ReshapeCopy final : public Kernel {
 public:
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedReshape>();
    const TensorView &x = inputs[0], &y = outputs[0];
    const size_t size = size_of(x.dtype);
    const Dims dense = row_major_strides(y.dims);
    if (count(x.dims) != count(y.dims))
      fail(ErrorCode::kInvalidArgument,
           fmt::format("Reshape of {} to {} changes the number of elements", to_string(x.dims),
                       to_string(y.dims)));
    if (is_row_major(x)) {
      made->first = CopyPlan(size, y.dims, dense, y.strides);
    } else {
      made->first = CopyPlan(size, x.dims, x.strides, row_major_strides(x.dims));
      made->has_second = !is_row_major(y);
    }
    if (made->has_second) {
      made->second = CopyPlan(size, y.dims, dense, y.strides);
      made->workspace_bytes = static_cast<size_t>(count(x.dims)) * size;
    }
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedReshape&>(*args.prepared);
    std::byte* const y = args.outputs[0].data;
    if (p.first.elements() == 0) return;
    p.first.run(args.inputs[0].data, p.has_second ? args.workspace : y, args.team);
    if (p.has_second) p.second.run(args.workspace, y, args.team);
  }
};

KernelResult make_reshape(const Reshape&, const Request& request) {
  if (has_epilogue(request)) return refuse("an epilogue");
  return std::make_unique<ReshapeCopy>();
}

// Several copies into parts of the output.
struct PreparedParts final : PreparedKernel {
  std::vector<CopyPlan> plans;
  std::vector<int64_t> offsets;  // bytes, in the output
};

class ConcatCopy final : public Kernel {
 public:
  explicit ConcatCopy(const Concat& op) : axis_(static_cast<int>(op.axis)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedParts>();
    const TensorView& y = outputs[0];
    int64_t begin = 0;
    for (const TensorView& x : inputs) {
      made->plans.emplace_back(size_of(x.dtype), x.dims, x.strides, y.strides);
      made->offsets.push_back(begin * y.strides[axis_] * static_cast<int64_t>(size_of(y.dtype)));
      begin += x.dims[axis_];
    }
    check(begin == y.dims[axis_], "Concat's inputs fill its output");
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& parts = static_cast<const PreparedParts&>(*args.prepared);
    for (size_t i = 0; i < parts.plans.size(); ++i)
      if (parts.plans[i].elements() > 0)
        parts.plans[i].run(args.inputs[i].data, args.outputs[0].data + parts.offsets[i], args.team);
  }

 private:
  int axis_;
};

KernelResult make_concat(const Concat& op, const Request& request) {
  if (has_epilogue(request)) return refuse("an epilogue");
  return std::make_unique<ConcatCopy>(op);
}

struct PreparedGather final : PreparedKernel {
  CopyPlan slice;       // for one index
  bool is_run = false;  // the slice is adjacent elements of both
  Dims index_dims, index_strides, to_strides;
};

class GatherCopy final : public Kernel {
 public:
  explicit GatherCopy(const Gather& op) : axis_(static_cast<int>(op.axis)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedGather>();
    const TensorView &x = inputs[0], &indices = inputs[1], &y = outputs[0];
    const int after = axis_ + indices.dims.rank();
    Dims dims, from, to;
    for (int axis = 0; axis < x.dims.rank(); ++axis) {
      if (axis == axis_) continue;
      const int of_y = axis < axis_ ? axis : axis - 1 + indices.dims.rank();
      dims.push_back(x.dims[axis]);
      from.push_back(x.strides[axis]);
      to.push_back(y.strides[of_y]);
    }
    made->slice = CopyPlan(size_of(x.dtype), dims, from, to);
    const Walk<2> elements(dims, {from, to});
    int64_t runs = 0;
    elements.for_runs(0, elements.count(), [&](const auto&, int64_t) { ++runs; });
    made->is_run =
        runs == 1 && (elements.count() == 1 || (elements.step(0) == 1 && elements.step(1) == 1));
    made->index_dims = indices.dims;
    made->index_strides = indices.strides;
    made->to_strides = part(y.strides, axis_, after);
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedGather&>(*args.prepared);
    const TensorView &x = args.inputs[0], &indices = args.inputs[1], &y = args.outputs[0];
    if (p.slice.elements() == 0) return;
    const auto size = static_cast<int64_t>(size_of(x.dtype));
    const auto bytes = static_cast<size_t>(p.slice.elements() * size);
    const Walk<2> walk(p.index_dims, {p.index_strides, p.to_strides});
    if (p.slice.elements() == 1) {
      const SingleElements one = {x, indices, y, axis_, walk.step(0), walk.step(1)};
      return args.team.for_ranges(walk.count(), kGrain, [&](int64_t begin, int64_t end) {
        walk.for_runs(begin, end,
                      [&](const auto& at, int64_t length) { one.take(at[0], at[1], 0, length); });
      });
    }
    const auto run = [&](int64_t begin, int64_t end) {
      walk.for_elements(begin, end, [&](const auto& at) {
        const int64_t place = place_of_index(load_integer(indices, at[0]), x.dims[axis_]);
        const std::byte* const from = x.data + place * x.strides[axis_] * size;
        std::byte* const to = y.data + at[1] * size;
        p.is_run ? void(std::memcpy(to, from, bytes)) : p.slice.run(from, to);
      });
    };
    args.team.for_ranges(walk.count(), 1 + kGrain / p.slice.elements(), run);
  }

 private:
  int axis_;
};

KernelResult make_gather(const Gather& op, const Request& request) {
  if (has_epilogue(request)) return refuse("an epilogue");
  return std::make_unique<GatherCopy>(op);
}

class TileCopy final : public Kernel {
 public:
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedCopy>();
    const TensorView &x = inputs[0], &y = outputs[0];
    if (count(y.dims) == 0) return made;
    Dims dims, from, to;
    const auto add = [&](int64_t size, int64_t from_stride, int64_t to_stride) {
      dims.push_back(size), from.push_back(from_stride), to.push_back(to_stride);
    };
    // Each axis of y is one of repeats and one of x.
    for (int axis = 0; axis < y.dims.rank(); ++axis) {
      add(y.dims[axis] / x.dims[axis], 0, x.dims[axis] * y.strides[axis]);
      add(x.dims[axis], x.strides[axis], y.strides[axis]);
    }
    made->plan = CopyPlan(size_of(x.dtype), dims, from, to);
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& plan = static_cast<const PreparedCopy&>(*args.prepared).plan;
    if (plan.elements() > 0) plan.run(args.inputs[0].data, args.outputs[0].data, args.team);
  }
};

KernelResult make_tile(const Tile&, const Request& request) {
  if (has_epilogue(request)) return refuse("an epilogue");
  if (request.inputs[0].type.dtype == DataType::kString) return refuse("strings");
  if (2 * request.inputs[0].type.shape.rank() > kMaxRank) return refuse("more than four axes");
  return std::make_unique<TileCopy>();
}

class ReverseSequenceCopy final : public Kernel {
 public:
  explicit ReverseSequenceCopy(const ReverseSequence& op)
      : batch_(static_cast<int>(op.batch_axis)), time_(static_cast<int>(op.time_axis)) {}
  // The plan: of the slice of one sequence at one time.
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override {
    auto made = std::make_unique<PreparedCopy>();
    const TensorView &x = inputs[0], &y = outputs[0];
    Dims dims, from, to;
    for (int axis = 0; axis < x.dims.rank(); ++axis) {
      if (axis == batch_ || axis == time_) continue;
      dims.push_back(x.dims[axis]);
      from.push_back(x.strides[axis]);
      to.push_back(y.strides[axis]);
    }
    made->plan = CopyPlan(size_of(x.dtype), dims, from, to);
    return made;
  }
  void launch(const LaunchArgs& args) const override {
    const auto& slice = static_cast<const PreparedCopy&>(*args.prepared).plan;
    const TensorView &x = args.inputs[0], &lengths = args.inputs[1], &y = args.outputs[0];
    if (count(y.dims) == 0) return;
    const auto size = static_cast<int64_t>(size_of(x.dtype));
    const int64_t steps = x.dims[time_];
    const auto copy = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / steps, t = i % steps;
        const int64_t length = load_integer(lengths, b * lengths.strides[0]);
        if (length < 0 || length > steps)
          fail(ErrorCode::kInvalidArgument,
               fmt::format("sequence {} has a length of {} of {} steps", b, length, steps));
        const int64_t source = t < length ? length - 1 - t : t;
        slice.run(x.data + (b * x.strides[batch_] + source * x.strides[time_]) * size,
                  y.data + (b * y.strides[batch_] + t * y.strides[time_]) * size);
      }
    };
    args.team.for_ranges(x.dims[batch_] * steps, 1 + kGrain / slice.elements(), copy);
  }

 private:
  int batch_, time_;
};

KernelResult make_reverse_sequence(const ReverseSequence& op, const Request& request) {
  if (has_epilogue(request)) return refuse("an epilogue");
  if (request.inputs[0].type.dtype == DataType::kString) return refuse("strings");
  return std::make_unique<ReverseSequenceCopy>(op);
}

constexpr KernelEntry kMovementEntries[] = {
    entry<Pointwise, make_copy>("cpu.pointwise.copy"),
    entry<Reshape, make_reshape>("cpu.reshape.copy"),
    entry<Transpose, make_transpose>("cpu.transpose.blocked"),
    entry<Slice, make_slice>("cpu.slice.copy"),
    entry<Expand, make_expand>("cpu.expand.copy"),
    entry<Tile, make_tile>("cpu.tile.copy"),
    entry<Concat, make_concat>("cpu.concat.copy"),
    entry<Gather, make_gather>("cpu.gather.copy"),
    entry<ReverseSequence, make_reverse_sequence>("cpu.reverse_sequence.copy"),
};

}  // namespace

std::span<const KernelEntry> copy_entries() { return kMovementEntries; }

}  // namespace anneal::cpu
