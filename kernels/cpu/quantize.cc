// Quantize and Dequantize as programs: "cpu.quantize.tiled", "cpu.dequantize.tiled".
#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/entries.h"
#include "anneal/kernels/cpu/reference.h"
#include "anneal/kernels/cpu/tape_kernel.h"

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

bool is_narrow_integer(DataType dtype) { return is_integer(dtype) && size_of(dtype) <= 2; }
bool is_narrow_float(DataType dtype) {
  return dtype == DataType::kF32 || dtype == DataType::kF16 || dtype == DataType::kBF16;
}
bool has_zero_point(const Request& request) {
  return request.op_input_count > 2 && request.inputs[2].present;
}

Made make_tape(ProgramBuilder& builder, Reg value, const Request& request, int64_t axis) {
  std::string why_not = epilogue_mismatch(request);
  if (!why_not.empty()) return refuse(std::move(why_not));
  const bool has_zero = has_zero_point(request);
  auto tape = Tape::compile(with_epilogue(builder, value, request, has_zero ? 3 : 2), why_not);
  if (!tape) return refuse(std::move(why_not));
  return {std::make_unique<QuantizeTape>(std::move(*tape), request, axis, has_zero), {}};
}

// Every step is exact or rounded as the op says: quotients beyond 2^24, where adding a zero point
// rounds, saturate anyway.
Made make_quantize(const Quantize& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, scale = request.inputs[1].type.dtype;
  if (op.block_size != 0) return refuse("a scale per block");
  if (!is_narrow_float(scale) || !(is_narrow_float(x) || x == DataType::kI32))
    return refuse("only f32, f16, bf16 and i32");
  if (!is_narrow_integer(op.dtype)) return refuse("only to 8 and 16 bits");
  ProgramBuilder builder;
  const Reg number = builder.cast(builder.input(0, x), RegisterType::kF32);
  Reg quotient = builder.apply(Opcode::kRoundEven,
                               builder.apply(Opcode::kDiv, number, builder.input(1, scale)));
  if (has_zero_point(request)) {
    const Reg zero = builder.input(2, request.inputs[2].type.dtype);
    quotient = builder.apply(Opcode::kAdd, quotient, builder.cast(zero, RegisterType::kF32));
  }
  return make_tape(builder, builder.saturate(quotient, op.dtype), request, op.axis);
}

Made make_dequantize(const Dequantize& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, scale = request.inputs[1].type.dtype;
  if (op.block_size != 0) return refuse("a scale per block");
  if (!is_narrow_float(scale)) return refuse("only to f32, f16 and bf16");
  if (!is_narrow_integer(x) && (x != DataType::kI32 || has_zero_point(request)))
    return refuse("only from 8 and 16 bits, and i32 without a zero point");
  ProgramBuilder builder;
  Reg number = builder.cast(builder.input(0, x), RegisterType::kI32);
  const Reg factor = builder.input(1, scale);
  if (has_zero_point(request)) {
    const Reg zero = builder.input(2, request.inputs[2].type.dtype);
    number = builder.apply(Opcode::kSub, number, builder.cast(zero, RegisterType::kI32));
  }
  const Reg value = builder.apply(Opcode::kMul, builder.cast(number, RegisterType::kF32), factor);
  return make_tape(builder, value, request, op.axis);
}

constexpr KernelEntry kEntries[] = {
    entry<Quantize, make_quantize>("cpu.quantize.tiled"),
    entry<Dequantize, make_dequantize>("cpu.dequantize.tiled"),
};

}  // namespace

std::span<const KernelEntry> tiled_quantize_entries() { return kEntries; }

}  // namespace anneal::cpu
