#include "anneal/kernels/quantize_program.h"
#include "anneal/core/dtype_kinds.h"

namespace anneal {
namespace {

bool is_narrow_integer(DataType dtype) { return is_integer(dtype) && size_of(dtype) <= 2; }
bool is_narrow_float(DataType dtype) { return dtype == DataType::kF32 || is_half(dtype); }

}  // namespace

bool has_zero_point(const Request& request) {
  return request.op_input_count > 2 && request.inputs[2].present;
}

// Every step is exact or rounded as the op says: quotients beyond 2^24, where adding a zero point
// rounds, saturate anyway.
Result<Reg> append(ProgramBuilder& builder, const Quantize& op, const Request& request) {
  const DataType x = request.inputs[0].type.dtype, scale = request.inputs[1].type.dtype;
  if (!is_narrow_float(scale) || !(is_narrow_float(x) || x == DataType::kI32))
    return refuse("only f32, f16, bf16 and i32");
  if (!is_narrow_integer(op.dtype)) return refuse("only to 8 and 16 bits");
  const Reg number = builder.cast(builder.input(0, x), RegisterType::kF32);
  Reg quotient = builder.apply(Opcode::kRoundEven,
                               builder.apply(Opcode::kDiv, number, builder.input(1, scale)));
  if (has_zero_point(request)) {
    const Reg zero = builder.input(2, request.inputs[2].type.dtype);
    quotient = builder.apply(Opcode::kAdd, quotient, builder.cast(zero, RegisterType::kF32));
  }
  return builder.saturate(quotient, op.dtype);
}

Result<Reg> append(ProgramBuilder& builder, const Dequantize& op, const Request& request) {
  if (!has_integers(op.encoding)) return refuse("codes of floats");
  const DataType x = request.inputs[0].type.dtype, scale = request.inputs[1].type.dtype;
  if (!is_narrow_float(scale)) return refuse("only to f32, f16 and bf16");
  if (!is_narrow_integer(x) && (x != DataType::kI32 || has_zero_point(request)))
    return refuse("only from 8 and 16 bits, and i32 without a zero point");
  Reg number = builder.cast(builder.input(0, x), RegisterType::kI32);
  const Reg factor = builder.input(1, scale);
  if (has_zero_point(request)) {
    const Reg zero = builder.input(2, request.inputs[2].type.dtype);
    number = builder.apply(Opcode::kSub, number, builder.cast(zero, RegisterType::kI32));
  }
  return builder.apply(Opcode::kMul, builder.cast(number, RegisterType::kF32), factor);
}

}  // namespace anneal
