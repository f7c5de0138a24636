// ConvTranspose: "cpu.conv_transpose.phases". Output positions that lie equally within the strides
// meet the same taps, so that they are a convolution with these taps alone.
#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/im2col_product.h"

namespace anneal::cpu {
namespace {

// Along one axis: outputs first, first + stride, ... meet taps tap, tap + tap_step, ...; in the
// order of the input those are backwards.
struct AxisPhase {
  int64_t first = 0, outputs = 0;
  int64_t tap = 0, tap_step = 1, taps = 0;
  int64_t pad = 0, dilation = 1;  // of the convolution
};

AxisPhase axis_phase(int64_t phase, int64_t size, int64_t kernel, int64_t stride, int64_t pad,
                     int64_t dilation) {
  AxisPhase result;
  result.first = phase;
  result.outputs = phase < size ? (size - phase - 1) / stride + 1 : 0;
  result.tap_step = stride / std::gcd(stride, dilation);
  result.dilation = result.tap_step * dilation / stride;
  while (result.tap < kernel && (phase + pad - result.tap * dilation) % stride != 0) ++result.tap;
  if (result.tap >= kernel) return result;
  result.taps = (kernel - 1 - result.tap) / result.tap_step + 1;
  // Output j of the phase meets input j + base with its first tap, and lower ones with the next.
  const int64_t base = (phase + pad - result.tap * dilation) / stride;
  result.pad = (result.taps - 1) * result.dilation - base;
  return result;
}

struct Phase {
  ConvPlan plan;
  std::vector<TensorView> inputs, outputs;  // as this phase sees them
  std::vector<int64_t> input_offsets, output_offsets;
  size_t packed_at = 0;
};

struct PreparedTranspose final : PreparedKernel {
  std::vector<Phase> phases;
  ChannelsLast x;
  size_t packed_at = 0, columns_at = 0, parts_at = 0;
};

class PhasedTranspose final : public Kernel {
 public:
  PhasedTranspose(const ConvTranspose& op, const Request& request, Epilogue epilogue)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        gemm_(DataType::kF32, isa_of(request.device)),
        load_(load_block(isa_of(request.device))),
        epilogues_(std::move(epilogue)) {
    const Tensor* w = request.inputs[1].constant;
    if (w == nullptr) return;
    size_t bytes = 0;
    for (int64_t i = 0; i < phase_count(); ++i) bytes += weights_of(kernel_view(*w), i).bytes();
    const std::string form = weights_of(kernel_view(*w), 0).layout.form();
    packed_ = packed_constant(request, form, bytes, [&](std::byte* to) {
      for (int64_t i = 0; i < phase_count(); ++i) {
        const ConvWeights weights = weights_of(kernel_view(*w), i);
        for_parts(request, weights.panels(), [&](int64_t panel) {
          weights.pack(kernel_view(*w).data, nullptr, panel, to, PackTo::kMemory);
        });
        to += weights.bytes();
      }
    });
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    auto made = std::make_unique<PreparedTranspose>();
    PreparedTranspose& p = *made;
    if (count(outputs[0].dims) == 0) return made;
    p.x = ChannelsLast(inputs[0], keeps_bf16());
    size_t packed = 0, columns = 0, part = 0;
    for (int64_t i = 0; i < phase_count(); ++i) {
      Phase phase = make_phase(inputs, outputs, i, threads);
      phase.packed_at = packed;
      packed += phase.plan.weights.bytes();
      columns = std::max(columns, phase.plan.columns_bytes);
      part = std::max(part, phase.plan.part_bytes);
      if (count(phase.outputs[0].dims) > 0) p.phases.push_back(std::move(phase));
    }
    p.packed_at = p.x.staged_bytes();
    p.columns_at = p.packed_at + (packed_ ? 0 : packed);
    p.parts_at = p.columns_at + columns;
    p.workspace_bytes = p.parts_at + part * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    auto& p = static_cast<PreparedTranspose&>(*args.prepared);
    if (p.phases.empty()) return;
    ConvOperands operands;
    operands.x = args.inputs[0].data;
    operands.columns = args.workspace + p.columns_at;
    operands.parts = args.workspace + p.parts_at;
    if (p.x.staged) {
      p.x.stage(args.inputs[0], args.workspace, load_, args.team);
      operands.x = args.workspace;
    }
    std::byte* const packed =
        packed_ ? const_cast<std::byte*>(packed_->bytes().data()) : args.workspace + p.packed_at;
    for (Phase& phase : p.phases) {
      const ConvWeights& weights = phase.plan.weights;
      std::byte* const to = packed + phase.packed_at;
      if (!packed_) {
        args.team.for_ranges(weights.panels(), 4, [&](int64_t begin, int64_t end) {
          for (int64_t panel = begin; panel < end; ++panel)
            weights.pack(args.inputs[1].data, nullptr, panel, to);
        });
      }
      operands.packed = to;
      aim(args.inputs, phase.input_offsets, phase.inputs);
      aim(args.outputs, phase.output_offsets, phase.outputs);
      gemm_.run(
          phase.plan, epilogues_, operands,
          {phase.inputs, phase.outputs, args.prepared, args.workspace, args.stream, args.team});
    }
  }

 private:
  static void aim(std::span<const TensorView> views, const std::vector<int64_t>& offsets,
                  std::vector<TensorView>& seen) {
    for (size_t i = 0; i < views.size(); ++i) {
      seen[i].data = views[i].data;
      if (seen[i].data != nullptr) seen[i].data += offsets[i];
    }
  }

  int64_t phase_count() const {
    int64_t phases = 1;
    for (const int64_t stride : op_.strides) phases *= stride;
    return phases;
  }

  // The phases of each spatial axis.
  std::vector<AxisPhase> axes_of(int64_t phase, const Dims& kernel, const Dims& output) const {
    std::vector<AxisPhase> axes(op_.strides.size());
    for (size_t i = axes.size(); i-- > 0;) {
      const int64_t within = phase % op_.strides[i];
      phase /= op_.strides[i];
      const int axis = static_cast<int>(i) + 2;
      axes[i] = axis_phase(within, output.rank() > 0 ? output[axis] : 0, kernel[axis],
                           op_.strides[i], op_.pads_begin[i], op_.dilations[i]);
    }
    return axes;
  }

  ConvWeights weights_of(const TensorView& w, int64_t phase) const {
    ConvWeights weights;
    weights.groups = op_.groups;
    weights.group_channels = w.dims[0] / op_.groups;
    weights.group_outputs = w.dims[1];
    weights.group_stride = weights.group_channels * w.strides[0];
    PackSource& source = weights.source;
    source.dtype = w.dtype;
    source.column_stride = w.strides[1];
    const auto axes = axes_of(phase, w.dims, {});
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t stride = w.strides[static_cast<int>(i) + 2];
      source.k_dims.push_back(axes[i].taps);
      source.k_strides.push_back(-axes[i].tap_step * stride);
      if (axes[i].taps > 0)
        weights.offset += (axes[i].tap + (axes[i].taps - 1) * axes[i].tap_step) * stride;
    }
    source.k_dims.push_back(weights.group_channels);
    source.k_strides.push_back(w.strides[0]);
    weights.layout = PackLayout(gemm_.kernels(), count(source.k_dims), weights.group_outputs);
    return weights;
  }

  // Every stride-th position of a view that broadcasts to the output.
  TensorView seen_in_phase(TensorView view, int rank, const std::vector<AxisPhase>& axes,
                           std::vector<int64_t>& offsets) const {
    int64_t offset = 0;
    const int missing = rank - view.dims.rank();
    for (int i = 0; i < view.dims.rank(); ++i) {
      const int axis = i + missing - 2;
      if (axis < 0 || view.dims[i] == 1) continue;
      offset += axes[static_cast<size_t>(axis)].first * view.strides[i];
      view.dims[i] = axes[static_cast<size_t>(axis)].outputs;
      view.strides[i] *= op_.strides[static_cast<size_t>(axis)];
    }
    offsets.push_back(offset * static_cast<int64_t>(size_of(view.dtype)));
    return view;
  }

  Phase make_phase(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                   int64_t number, int threads) const {
    Phase phase;
    const int rank = outputs[0].dims.rank();
    const auto axes = axes_of(number, inputs[1].dims, outputs[0].dims);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i < op_inputs_) {
        phase.inputs.push_back(inputs[i]);
        phase.input_offsets.push_back(0);
      } else {
        phase.inputs.push_back(seen_in_phase(inputs[i], rank, axes, phase.input_offsets));
      }
    }
    for (const TensorView& y : outputs)
      phase.outputs.push_back(seen_in_phase(y, rank, axes, phase.output_offsets));
    // An output axis of one element keeps it in the phase that has it.
    for (TensorView& y : phase.outputs)
      for (int axis = 2; axis < rank; ++axis)
        y.dims[axis] = axes[static_cast<size_t>(axis) - 2].outputs;

    ConvPlan& plan = phase.plan;
    plan.weights = weights_of(inputs[1], number);
    if (count(phase.outputs[0].dims) == 0) return phase;
    TapeSpace::Axes space{{0}, 1};
    for (int axis = 2; axis < rank; ++axis) space.rows.push_back(axis);
    plan.spaces = epilogues_.spaces(phase.inputs, phase.outputs, space);
    plan.x = ChannelsLast(inputs[0], keeps_bf16());
    plan.window.out = spatial_of(phase.outputs[0].dims, 2, rank - 2, 1);
    plan.window.kernel = plan.window.stride = plan.window.dilation = {1, 1, 1};
    for (int i = 0; i < rank - 2; ++i) {
      const AxisPhase& axis = axes[static_cast<size_t>(i)];
      const int place = 5 - rank + i;
      const auto at = static_cast<size_t>(place);
      plan.window.kernel[at] = axis.taps;
      plan.window.pad[at] = axis.pad;
      plan.window.dilation[at] = axis.dilation;
    }
    gemm_.finish(plan, epilogues_, phase.outputs[0], threads);
    return phase;
  }

  bool keeps_bf16() const { return gemm_.kernels().kind == GemmKind::kBf16; }

  ConvTranspose op_;
  size_t op_inputs_;
  ConvGemm gemm_;
  LoadBlock load_;
  Epilogues epilogues_;
  std::optional<Tensor> packed_;  // the weights of all phases, if they are constants
};

KernelResult make_phased(const ConvTranspose& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, w = request.inputs[1].type.dtype;
  if (x != w || (x != DataType::kF32 && x != DataType::kF16 && x != DataType::kBF16))
    return refuse("only f32, f16 and bf16");
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  int64_t phases = 1;
  for (const int64_t stride : op.strides) {
    if (stride > 64) return refuse("a stride of more than 64");
    phases *= stride;
  }
  if (phases > 64) return refuse("strides of more than 64 positions");
  for (const Program& epilogue : request.epilogues)
    if (epilogue.uses_index()) return refuse("an epilogue with an index");
  auto epilogue = Epilogue::make(request, DataType::kF32);
  if (!epilogue) return refuse(epilogue.reason());
  return std::make_unique<PhasedTranspose>(op, request, std::move(*epilogue));
}

constexpr KernelEntry kTransposeEntries[] = {
    entry<ConvTranspose, make_phased>("cpu.conv_transpose.phases", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> phased_conv_transpose_entries() { return kTransposeEntries; }

}  // namespace anneal::cpu
