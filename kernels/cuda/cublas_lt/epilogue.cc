#include "anneal/kernels/cuda/cublas_lt/epilogue.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <vector>

namespace anneal::cuda {
namespace {

constexpr size_t kMostInstructions = 24;  // the longest that we compare with has 17

// The forms in which models write 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
constexpr int kCubes = 3, kHalves = 3, kGeluForms = kCubes * kHalves;

Reg gelu_cube(ProgramBuilder& builder, Reg x, int form) {
  const Reg factor = builder.constant(0.044715F);
  const auto mul = [&](Reg a, Reg b) { return builder.apply(Opcode::kMul, a, b); };
  if (form == 2) {  // x (1 + 0.044715 x x)
    const Reg one = builder.constant(1.0F);
    return mul(x, builder.apply(Opcode::kAdd, mul(mul(x, x), factor), one));
  }
  const Reg cube =
      form == 0 ? mul(mul(x, x), x) : builder.apply(Opcode::kPow, x, builder.constant(3.0F));
  return builder.apply(Opcode::kAdd, x, mul(cube, factor));
}

Reg tanh_gelu(ProgramBuilder& builder, Reg x, int form) {
  const auto mul = [&](Reg a, Reg b) { return builder.apply(Opcode::kMul, a, b); };
  const Reg scale = builder.constant(0.7978845608028654F), half = builder.constant(0.5F);
  const Reg tanh = builder.apply(Opcode::kTanh, mul(gelu_cube(builder, x, form % kCubes), scale));
  const Reg sum = builder.apply(Opcode::kAdd, tanh, builder.constant(1.0F));
  if (form / kCubes == 0) return mul(mul(x, half), sum);
  if (form / kCubes == 1) return mul(mul(x, sum), half);
  return mul(x, mul(sum, half));
}

Reg activated(ProgramBuilder& builder, Reg x, LtActivation activation, int form) {
  if (activation == LtActivation::kRelu)
    return builder.apply(Opcode::kMax, x, builder.constant(0.0F));
  return activation == LtActivation::kGelu ? tanh_gelu(builder, x, form) : x;
}

// The orders in which three terms can be added.
constexpr int kOrders = 3;
Reg sum_of(ProgramBuilder& builder, Reg product, const std::vector<Reg>& terms, int order) {
  const auto add = [&](Reg a, Reg b) { return builder.apply(Opcode::kAdd, a, b); };
  if (terms.empty()) return product;
  if (terms.size() == 1) return add(product, terms[0]);
  if (order == 0) return add(add(product, terms[0]), terms[1]);
  if (order == 1) return add(add(product, terms[1]), terms[0]);
  return add(product, add(terms[0], terms[1]));
}

// The program that the epilogue stands for, in one of its forms.
Program program_of(const LtEpilogue& epilogue, const Program& like, int order, int form) {
  ProgramBuilder builder;
  const std::span<const DataType> types = like.inputs();
  std::vector<Reg> inputs;
  for (size_t i = 0; i < types.size(); ++i)
    inputs.push_back(builder.input(static_cast<int>(i), types[i]));
  Reg value = builder.cast(inputs[0], RegisterType::kF32);
  if (epilogue.alpha != 1)
    value = builder.apply(Opcode::kMul, value, builder.constant(epilogue.alpha));
  std::vector<Reg> terms;
  for (const std::optional<int>& input : {epilogue.residual, epilogue.bias})
    if (input)
      terms.push_back(builder.cast(inputs[static_cast<size_t>(*input)], RegisterType::kF32));
  value = activated(builder, sum_of(builder, value, terms, order), epilogue.activation, form);
  const DataType dtype = like.results()[0].dtype;
  if (dtype == DataType::kI8)
    value = builder.saturate(builder.apply(Opcode::kRoundEven, value), dtype);
  return builder.finish(value, dtype);
}

std::vector<float> factors_of(const Program& program) {
  std::vector<float> factors = {1};
  for (const Instruction& instruction : program.code()) {
    if (instruction.opcode != Opcode::kConstant || instruction.type != RegisterType::kF32) continue;
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(instruction.immediate));
    if (std::isfinite(value) && value != 0 && value != 1) factors.push_back(value);
  }
  return factors;
}

bool is_any_form(const LtEpilogue& epilogue, const Program& program) {
  const int orders = epilogue.residual && epilogue.bias ? kOrders : 1;
  const int forms = epilogue.activation == LtActivation::kGelu ? kGeluForms : 1;
  for (int order = 0; order < orders; ++order)
    for (int form = 0; form < forms; ++form)
      if (program_of(epilogue, program, order, form) == program) return true;
  return false;
}

}  // namespace

Result<LtEpilogue> lt_epilogue(const Program& program, std::span<const LtOperand> operands) {
  if (program.results().size() != 1) return refuse("an epilogue with several results");
  if (program.inputs().size() != operands.size() + 1)
    return refuse("an epilogue that does not read the product");
  const DataType sum = program.inputs()[0], result = program.results()[0].dtype;
  const bool is_byte = sum == DataType::kI32 && result == DataType::kI8;
  const bool is_float = sum == DataType::kF32 && register_type(result) == RegisterType::kF32;
  if (!is_byte && !is_float)
    return refuse(fmt::format("an epilogue from {} to {}", to_string(sum), to_string(result)));
  LtEpilogue epilogue;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::optional<int>& place =
        operands[i] == LtOperand::kVector ? epilogue.bias : epilogue.residual;
    if (place) return refuse("an epilogue with more than one vector and one matrix");
    place = static_cast<int>(i) + 1;
  }
  if (is_byte && !operands.empty())
    return refuse("8-bit results with a bias, a scale for each channel or a residual");
  if (program.code().size() > kMostInstructions)
    return refuse("an epilogue that cuBLASLt does not have");
  for (const float factor : factors_of(program))
    for (const LtActivation activation :
         {LtActivation::kNone, LtActivation::kRelu, LtActivation::kGelu}) {
      epilogue.alpha = factor;
      epilogue.activation = activation;
      if (!is_byte || activation != LtActivation::kGelu)
        if (is_any_form(epilogue, program)) return epilogue;
    }
  return refuse("an epilogue that cuBLASLt does not have");
}

}  // namespace anneal::cuda
