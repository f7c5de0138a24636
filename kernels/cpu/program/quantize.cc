// Quantize and Dequantize as programs: "cpu.quantize.tiled", "cpu.dequantize.tiled".
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/program/tape_kernel.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/quantize_program.h"

namespace anneal::cpu {
namespace {

// Inputs of the program: x, scale, the zero point if there is one, then the epilogue's.
class QuantizeTape final : public TapeKernel {
 public:
  QuantizeTape(Tape tape, const Request& request, int64_t axis, bool has_zero)
      : TapeKernel(std::move(tape), isa_of(request.device)),
        axis_(static_cast<int>(axis)),
        op_inputs_(static_cast<size_t>(request.op_input_count)),
        has_zero_(has_zero) {}

 protected:
  void see(std::span<const TensorView> inputs, std::span<const TensorView>,
           std::vector<TensorView>& seen) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i == 2 && i < op_inputs_ && !has_zero_) continue;
      const bool is_parameter = i > 0 && i < op_inputs_;
      seen.push_back(is_parameter ? along_axis(inputs[i], inputs[0].dims.rank()) : inputs[i]);
    }
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

  int axis_;
  size_t op_inputs_;
  bool has_zero_;
};

template <class T>
KernelResult make_tape(const T& op, const Request& request) {
  ProgramBuilder builder;
  const auto value = append(builder, op, request);
  if (!value) return refuse(value.reason());
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  const bool has_zero = has_zero_point(request);
  auto tape = Tape::compile(with_epilogue(builder, *value, request, has_zero ? 3 : 2));
  if (!tape) return refuse(tape.reason());
  return std::make_unique<QuantizeTape>(std::move(*tape), request, op.axis, has_zero);
}

constexpr KernelEntry kQuantizeEntries[] = {
    entry<Quantize, make_tape<Quantize>>("cpu.quantize.tiled"),
    entry<Dequantize, make_tape<Dequantize>>("cpu.dequantize.tiled"),
};

}  // namespace

std::span<const KernelEntry> tiled_quantize_entries() { return kQuantizeEntries; }

}  // namespace anneal::cpu
