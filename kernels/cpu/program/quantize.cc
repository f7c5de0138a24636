// Quantize and Dequantize as programs: "cpu.quantize.tiled", "cpu.dequantize.tiled".
#include <algorithm>

#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/program/tape_kernel.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/quantize_program.h"

namespace anneal::cpu {
namespace {

// Inputs of the program: x, scale, the zero point if there is one, then the epilogue's. Where there
// is a scale for each block, the axis is seen as two: the blocks, and the elements of a block.
class QuantizeTape final : public TapeKernel {
 public:
  QuantizeTape(Tape tape, const Request& request, int64_t axis, int64_t block, bool has_zero)
      : TapeKernel(std::move(tape), isa_of(request.device)),
        axis_(static_cast<int>(axis)),
        block_(block),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        has_zero_(has_zero) {}

 protected:
  void see(std::span<const TensorView> inputs, std::span<const TensorView>,
           std::vector<TensorView>& seen) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i == 2 && i < op_inputs_ && !has_zero_) continue;
      const bool is_parameter = i > 0 && i < op_inputs_;
      if (block_ > 0)
        seen.push_back(is_parameter ? one_per_block(inputs[i])
                                    : in_blocks(inputs[i], inputs[0].dims.rank()));
      else
        seen.push_back(is_parameter ? along_axis(inputs[i], inputs[0].dims.rank()) : inputs[i]);
    }
  }
  void see_results(std::span<const TensorView> outputs,
                   std::vector<TensorView>& seen) const override {
    for (const TensorView& output : outputs)
      seen.push_back(block_ > 0 ? in_blocks(output, output.dims.rank()) : output);
  }

 private:
  // A scale or zero point, so that it broadcasts to x.
  TensorView along_axis(TensorView view, int rank) const {
    const bool one = count(view.dims) == 1;
    const int64_t size = one ? 1 : view.dims[0], stride = one ? 0 : view.strides[0];
    view.dims = {size};
    view.strides = {stride};
    for (int after = one ? rank : axis_ + 1; after < rank; ++after) {
      view.dims.push_back(1);
      view.strides.push_back(0);
    }
    return view;
  }

  // The blocks of a view that broadcasts to x, which has `rank` axes.
  TensorView in_blocks(const TensorView& view, int rank) const {
    const int axis = axis_ - (rank - view.dims.rank());
    if (axis < 0) return view;
    const bool one = view.dims[axis] == 1;
    return with_axis_behind(view, axis, one ? 1 : view.dims[axis] / block_, one ? 1 : block_);
  }
  TensorView one_per_block(const TensorView& view) const {
    TensorView seen = with_axis_behind(view, axis_, view.dims[axis_], 1);
    seen.strides[axis_] = view.strides[axis_];
    return seen;
  }
  static TensorView with_axis_behind(const TensorView& view, int axis, int64_t outer,
                                     int64_t inner) {
    TensorView seen = view;
    seen.dims = {};
    seen.strides = {};
    for (int i = 0; i < view.dims.rank(); ++i) {
      seen.dims.push_back(i == axis ? outer : view.dims[i]);
      seen.strides.push_back(i == axis ? view.strides[i] * inner : view.strides[i]);
      if (i != axis) continue;
      seen.dims.push_back(inner);
      seen.strides.push_back(view.strides[i]);
    }
    return seen;
  }

  int axis_;
  int64_t block_;  // 0: no blocks
  size_t op_inputs_;
  bool has_zero_;
};

// Why the axis cannot be seen as blocks; empty if it can.
template <class T>
std::string why_not_in_blocks(const T& op, const Request& request) {
  if (op.block_size == 0) return {};
  const Shape& shape = request.inputs[0].type.shape;
  const Size size = shape[static_cast<int>(op.axis)];
  if (shape.rank() == kMaxRank) return "blocks of an axis of as many axes as there can be";
  if (!size.known() || size.value() % op.block_size != 0)
    return "the axis is not a whole number of blocks";
  if (std::ranges::any_of(request.epilogues, &Program::uses_index))
    return "the epilogue counts along the axis that is seen as blocks";
  return {};
}

template <class T>
KernelResult make_tape(const T& op, const Request& request) {
  if (std::string why = why_not_in_blocks(op, request); !why.empty()) return refuse(std::move(why));
  ProgramBuilder builder;
  const auto value = append(builder, op, request);
  if (!value) return refuse(value.reason());
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  const bool has_zero = has_zero_point(request);
  auto tape = Tape::compile(with_epilogue(builder, *value, request, has_zero ? 3 : 2));
  if (!tape) return refuse(tape.reason());
  return std::make_unique<QuantizeTape>(std::move(*tape), request, op.axis, op.block_size,
                                        has_zero);
}

constexpr KernelEntry kQuantizeEntries[] = {
    entry<Quantize, make_tape<Quantize>>("cpu.quantize.tiled"),
    entry<Dequantize, make_tape<Dequantize>>("cpu.dequantize.tiled"),
};

}  // namespace

std::span<const KernelEntry> tiled_quantize_entries() { return kQuantizeEntries; }

}  // namespace anneal::cpu
