#include "anneal/tests/kernels/tape_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/program/tape_space.h"

namespace anneal::cpu {
namespace {

double as_double(RegisterType type, Scalar value) {
  return type == RegisterType::kF32 ? value.as<float>() : value.as<double>();
}

Scalar evaluate_at(const Program& program, size_t result, std::span<const Scalar> inputs,
                   const Dims& index) {
  std::vector<Scalar> values;
  for (const Instruction& i : program.code()) {
    if (i.opcode == Opcode::kInput) {
      values.push_back(inputs[i.immediate]);
    } else if (i.opcode == Opcode::kConstant) {
      values.push_back({i.immediate});
    } else if (i.opcode == Opcode::kIndex) {
      values.push_back(Scalar::of(index[static_cast<int>(i.immediate)]));
    } else {
      std::vector<Scalar> operands;
      std::vector<RegisterType> types;
      for (int k = 0; k < operand_count(i.opcode); ++k) {
        operands.push_back(values[i.operands[k]]);
        types.push_back(program.code()[i.operands[k]].type);
      }
      values.push_back(evaluate(i, operands, types));
    }
  }
  return values[program.results()[result].reg];
}

}  // namespace

// Numbers of all magnitudes, small integers, and the special ones.
Scalar random_value(DataType dtype, std::mt19937& random) {
  const auto small = static_cast<int>(random() % 21) - 10;
  const double wild =
      std::ldexp(1.0 + random() / 4294967296.0, static_cast<int>(random() % 40) - 20);
  static constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-42, 3e38};
  double value = random() % 2 != 0 ? small / 2.0 : random() % 2 != 0 ? wild : -wild;
  if (random() % 16 == 0) value = kSpecial[random() % 7];
  const uint64_t bits = uint64_t{random()} << 32 | random();
  std::byte stored[8] = {};
  switch (dtype) {
    case DataType::kF64:
      return Scalar::of(value);
    case DataType::kF32:
      return Scalar::of(static_cast<float>(value));
    case DataType::kF16:
      return Scalar::of(to_f32(to_f16(static_cast<float>(value))));
    case DataType::kBF16:
      return Scalar::of(to_f32(to_bf16(static_cast<float>(value))));
    case DataType::kBool:
      return Scalar::of(random() % 2 != 0);
    default:
      break;
  }
  const uint64_t number = random() % 2 != 0 ? static_cast<uint64_t>(int64_t{small}) : bits;
  store_scalar(dtype, {number}, stored);
  return load_scalar(dtype, stored);
}

// Floats may differ by `ulp` units of f32 (f64: exact where ulp is 0).
bool near(RegisterType type, Scalar got, Scalar want, int ulp) {
  const bool is_float = type == RegisterType::kF32 || type == RegisterType::kF64;
  if (!is_float) {
    const uint64_t mask = type == RegisterType::kBool                                ? 0xff
                          : type == RegisterType::kI32 || type == RegisterType::kU32 ? 0xffffffff
                                                                                     : ~uint64_t{0};
    return (got.bits & mask) == (want.bits & mask);
  }
  const double a = as_double(type, got);
  const double b = as_double(type, want);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (ulp == 0 || std::isinf(a) || std::isinf(b)) return false;
  const double unit = std::max(std::ldexp(1.0, std::ilogb(b) - 23), std::ldexp(1.0, -149));
  return std::abs(a - b) <= ulp * unit;
}

// Element of a view that broadcasts to dims, at an index of dims.
std::byte* element(const TensorView& view, const Dims& index) {
  int64_t offset = 0;
  for (int axis = 0; axis < view.dims.rank(); ++axis) {
    const int64_t at = index[axis + index.rank() - view.dims.rank()];
    offset += (view.dims[axis] == 1 ? 0 : at) * view.strides[axis];
  }
  return view.data + offset * static_cast<int64_t>(size_of(view.dtype));
}

Dims index_of(const Dims& dims, int64_t element) {
  Dims index = Dims::filled(dims.rank(), 0);
  for (int axis = dims.rank() - 1; axis >= 0; --axis) {
    index[axis] = element % dims[axis];
    element /= dims[axis];
  }
  return index;
}

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})
    if (isa <= current_isa()) all.push_back(isa);
  return all;
}

Array random_array(DataType dtype, const Dims& dims, std::mt19937& random) {
  Array array(dtype, dims);
  const size_t size = size_of(dtype);
  for (size_t at = 0; at < array.bytes.size(); at += size)
    store_scalar(dtype, random_value(dtype, random), array.bytes.data() + at);
  return array;
}

// What a Pointwise layer gives, as scalars, results one after the other.
std::vector<Scalar> expected(const Program& program, std::span<const TensorView> inputs,
                             std::span<const TensorView> outputs) {
  std::vector<Scalar> all;
  for (size_t result = 0; result < outputs.size(); ++result) {
    const Dims& dims = outputs[result].dims;
    for (int64_t i = 0; i < count(dims); ++i) {
      const Dims index = index_of(dims, i);
      std::vector<Scalar> values;
      for (const TensorView& view : inputs)
        values.push_back(load_scalar(view.dtype, element(view, index)));
      all.push_back(evaluate_at(program, result, values, index));
    }
  }
  return all;
}

void expect_stored(const Program& program, std::span<const Scalar> want,
                   std::span<const TensorView> outputs, int ulp, Isa isa) {
  size_t at = 0;
  for (size_t result = 0; result < outputs.size(); ++result) {
    const TensorView& view = outputs[result];
    const RegisterType type = program.code()[program.results()[result].reg].type;
    int wrong = 0;
    for (int64_t i = 0; i < count(view.dims); ++i, ++at) {
      std::byte stored[8];
      store_scalar(view.dtype, want[at], stored);
      const Scalar wanted = load_scalar(view.dtype, stored);
      const Scalar got = load_scalar(view.dtype, element(view, index_of(view.dims, i)));
      if (near(type, got, wanted, ulp) || ++wrong > 3) continue;
      ADD_FAILURE() << to_string(program) << " on " << to_string(isa) << ": result " << result
                    << " at " << to_string(index_of(view.dims, i)) << " is " << got.bits << " ("
                    << as_double(type, got) << "), not " << wanted.bits << " ("
                    << as_double(type, wanted) << ")";
    }
  }
}

void run_elements(const Tape& tape, Isa isa, std::span<const TensorView> inputs,
                  std::span<const TensorView> outputs) {
  const TapeSpace space = TapeSpace::of_elements(tape, inputs, outputs);
  std::vector<std::byte> scratch(tape.scratch_bytes() + 64);
  void* aligned = scratch.data();
  size_t room = scratch.size();
  std::align(64, tape.scratch_bytes(), aligned, room);
  space.run(run_tape(isa), tape, {inputs, outputs}, {0, space.rows(), 0, space.columns()},
            static_cast<std::byte*>(aligned));
}

Tape compiled(const Program& program) {
  auto tape = Tape::compile(program);
  EXPECT_TRUE(tape) << tape.reason();
  return std::move(*tape);
}

// Every other element of rows twice as long.
TensorView with_gaps(const Array& array, const Dims& dims) {
  TensorView view = array.view;
  view.dims = dims;
  view.strides[dims.rank() - 1] = 2;
  return view;
}

// Dense inputs may run as a vector program, those with gaps run in tiles.
void check_program(const Program& program, const Dims& dims, int ulp, std::mt19937& random,
                   bool has_gaps) {
  std::vector<Array> inputs;
  std::vector<TensorView> in, out;
  for (const DataType dtype : program.inputs()) inputs.push_back(random_array(dtype, dims, random));
  for (const Array& array : inputs) in.push_back(array.view);
  Dims stored = dims;
  if (has_gaps) stored[dims.rank() - 1] *= 2;
  std::vector<Array> outputs;
  for (const auto& result : program.results()) outputs.emplace_back(result.dtype, stored);
  for (const Array& array : outputs) out.push_back(has_gaps ? with_gaps(array, dims) : array.view);
  const auto want = expected(program, in, out);
  for (const Isa isa : isas()) {
    run_elements(compiled(program), isa, in, out);
    expect_stored(program, want, out, ulp, isa);
  }
}

bool is_transcendental(Opcode opcode) {
  return (opcode >= Opcode::kExp && opcode <= Opcode::kSigmoid) || opcode == Opcode::kPow;
}

}  // namespace anneal::cpu
