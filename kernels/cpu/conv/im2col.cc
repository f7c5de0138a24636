// "cpu.conv.nhwc".
#include <algorithm>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/new_tensor.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/base/workspace.h"
#include "anneal/kernels/cpu/conv/im2col_product.h"

namespace anneal::cpu {
namespace {

struct PreparedConv final : PreparedKernel {
  ConvPlan plan;
  size_t packed_at = 0, columns_at = 0, parts_at = 0;
};

class NhwcConv final : public Kernel {
 public:
  NhwcConv(const Conv& op, const Request& request, Epilogues epilogues)
      : op_(op),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        int8_(is_8bit(request.inputs[0].type.dtype)),
        gemm_(request.inputs[0].type.dtype, isa_of(request.device)),
        load_(load_block(isa_of(request.device))),
        epilogues_(std::move(epilogues)) {
    const Tensor* w = request.inputs[1].constant;
    const bool has_zero = request.op_input_count > 3 && request.inputs[3].present;
    const Tensor* zero = has_zero ? request.inputs[3].constant : nullptr;
    if (w == nullptr || (has_zero && zero == nullptr)) return;
    const TensorView zero_view = zero != nullptr ? kernel_view(*zero) : TensorView{};
    const ConvWeights weights = weights_of(kernel_view(*w), zero_view);
    packed_ = packed_constant(request, weights.layout.form(), weights.bytes(), [&](std::byte* to) {
      for_parts(request, weights.panels(), [&](int64_t panel) {
        weights.pack(kernel_view(*w).data, zero_view.data, panel, to, PackTo::kMemory);
      });
    });
  }

  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override {
    const TensorView& y = outputs[0];
    auto made = std::make_unique<PreparedConv>();
    PreparedConv& p = *made;
    p.plan.spaces = epilogues_.pixel_spaces(inputs, outputs);
    if (count(y.dims) == 0) return made;
    p.plan.weights = weights_of(inputs[1], zero_point(inputs, 3));
    p.plan.window = Window(op_, inputs[1].dims, 2, y.dims);
    p.plan.x = ChannelsLast(inputs[0], gemm_.kernels().kind == GemmKind::kBf16);
    gemm_.finish(p.plan, epilogues_, y, threads);
    p.packed_at = p.plan.x.staged_bytes();
    p.columns_at = p.packed_at + (packed_ ? 0 : p.plan.weights.bytes());
    p.parts_at = p.columns_at + p.plan.columns_bytes;
    p.workspace_bytes = p.parts_at + p.plan.part_bytes * static_cast<size_t>(threads);
    return made;
  }

  void launch(const LaunchArgs& args) const override {
    const auto& p = static_cast<const PreparedConv&>(*args.prepared);
    if (count(args.outputs[0].dims) == 0) return;
    ConvOperands operands;
    operands.x = args.inputs[0].data;
    operands.x_dtype = args.inputs[0].dtype;
    operands.x_zero = zero_point(args.inputs, 2);
    operands.w_zero = zero_point(args.inputs, 3);
    operands.columns = args.workspace + p.columns_at;
    operands.parts = args.workspace + p.parts_at;
    if (p.plan.x.staged) {
      p.plan.x.stage(args.inputs[0], args.workspace, load_, args.team);
      operands.x = args.workspace;
    }
    operands.packed = packed_ ? packed_->bytes().data() : args.workspace + p.packed_at;
    if (!packed_) {
      args.team.for_ranges(p.plan.weights.panels(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel)
          p.plan.weights.pack(args.inputs[1].data, operands.w_zero.data, panel,
                              args.workspace + p.packed_at);
      });
    }
    gemm_.run(p.plan, epilogues_, operands, args);
  }

 private:
  // The zero point at this position, if there is one.
  TensorView zero_point(std::span<const TensorView> inputs, size_t i) const {
    return int8_ && i < op_inputs_ ? inputs[i] : TensorView{};
  }

  ConvWeights weights_of(const TensorView& w, const TensorView& zero) const {
    ConvWeights weights;
    weights.groups = op_.groups;
    weights.group_channels = w.dims[1];
    weights.group_outputs = w.dims[0] / op_.groups;
    weights.group_stride = weights.group_outputs * w.strides[0];
    PackSource& source = weights.source;
    source.dtype = w.dtype;
    source.column_stride = w.strides[0];
    for (int axis = 2; axis < w.dims.rank(); ++axis) {
      source.k_dims.push_back(w.dims[axis]);
      source.k_strides.push_back(w.strides[axis]);
    }
    source.k_dims.push_back(w.dims[1]);
    source.k_strides.push_back(w.strides[1]);
    if (zero.dims.rank() > 0 && count(zero.dims) > 1) source.zero_stride = zero.strides[0];
    weights.layout = PackLayout(gemm_.kernels(), count(source.k_dims), weights.group_outputs);
    return weights;
  }

  Conv op_;
  size_t op_inputs_;
  bool int8_;
  ConvGemm gemm_;
  LoadBlock load_;
  Epilogues epilogues_;
  std::optional<Tensor> packed_;  // the weights, if they are constants
};

KernelResult make_nhwc(const Conv& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, w = request.inputs[1].type.dtype;
  const bool int8 = is_8bit(x) && is_8bit(w);
  const bool f32 = x == w && (x == DataType::kF32 || is_half(x));
  if (!int8 && !f32) return refuse("only f32, f16, bf16 and 8-bit operands");
  const int rank = request.inputs[0].type.shape.rank();
  if (rank < 3 || rank > 5) return refuse("only one to three spatial axes");
  auto epilogues = Epilogues::make(request, int8 ? DataType::kI32 : DataType::kF32,
                                   std::max<size_t>(op.split.size(), 1));
  if (!epilogues) return refuse(epilogues.reason());
  return std::make_unique<NhwcConv>(op, request, std::move(*epilogues));
}

constexpr KernelEntry kIm2colEntries[] = {
    entry<Conv, make_nhwc>("cpu.conv.nhwc", Layout::kChannelsLast),
};

}  // namespace

std::span<const KernelEntry> nhwc_conv_entries() { return kIm2colEntries; }

}  // namespace anneal::cpu
