// What ProgramBuilder leaves out: every pair of instructions in a row, with every constant that is
// special, gives for every special value what it gives as written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/graph/program/program.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

constexpr RegisterType kTypes[] = {RegisterType::kF32, RegisterType::kF64, RegisterType::kI32,
                                   RegisterType::kI64, RegisterType::kU32, RegisterType::kU64,
                                   RegisterType::kBool};

Scalar converted(RegisterType from, Scalar value, RegisterType to) {
  if (from == to) return value;
  return evaluate({Opcode::kCast, to, {}, 0}, std::span(&value, 1), std::span(&from, 1));
}

std::vector<Scalar> values_of(RegisterType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kFloats[] = {0, -0.0, 1,         -1,         2,   -2.5, 0.75,
                                       6, 1e30, kInfinity, -kInfinity, NAN, 3e9,  -3e9};
  static constexpr int64_t kIntegers[] = {0,  1,  2,         -1,        -2,        31,
                                          32, 63, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};
  std::vector<Scalar> values;
  if (type == RegisterType::kBool) return {{0}, {1}};
  if (is_float(type)) {
    for (const double value : kFloats)
      values.push_back(converted(RegisterType::kF64, Scalar::of(value), type));
  } else {
    for (const int64_t value : kIntegers)
      values.push_back(converted(RegisterType::kI64, Scalar::of(value), type));
  }
  return values;
}

DataType storage(RegisterType type) {
  for (const DataType dtype : all_dtypes())
    if (dtype != DataType::kString && register_type(dtype) == type &&
        size_of(dtype) * 8 >= static_cast<size_t>(width(type)))
      return dtype;
  return DataType::kF32;
}

bool takes(Opcode opcode, std::span<const RegisterType> types) {
  Instruction instruction{opcode, types.back(), {}, 0};
  if (opcode == Opcode::kEqual || opcode == Opcode::kLess || opcode == Opcode::kLessEqual ||
      opcode == Opcode::kIsNan || opcode == Opcode::kIsInf)
    instruction.type = RegisterType::kBool;
  return fault(instruction, types).empty();
}

// A register and the value that it has as written.
struct Pair {
  Reg reg;
  Scalar value;
};

class Writer {
 public:
  explicit Writer(ProgramBuilder& builder) : builder_(builder) {}

  Pair literal(RegisterType type, Scalar value) {
    if (type == RegisterType::kF32) return {builder_.constant(value.as<float>()), value};
    if (type == RegisterType::kF64) return {builder_.constant(value.as<double>()), value};
    return {builder_.constant(type, converted(type, value, RegisterType::kI64).as<int64_t>()),
            value};
  }
  Pair cast(Pair a, RegisterType type) {
    return {builder_.cast(a.reg, type), converted(a.reg.type, a.value, type)};
  }
  Pair apply(Opcode opcode, Pair a) {
    const Reg reg = builder_.apply(opcode, a.reg);
    return {reg,
            evaluate({opcode, reg.type, {}, 0}, std::span(&a.value, 1), std::span(&a.reg.type, 1))};
  }
  Pair apply(Opcode opcode, Pair a, Pair b) {
    const Reg reg = builder_.apply(opcode, a.reg, b.reg);
    const Scalar values[] = {a.value, b.value};
    const RegisterType types[] = {a.reg.type, b.reg.type};
    return {reg, evaluate({opcode, reg.type, {}, 0}, values, types)};
  }

 private:
  ProgramBuilder& builder_;
};

Scalar run(const Program& program, Scalar input) {
  std::vector<Scalar> values;
  for (const Instruction& instruction : program.code()) {
    if (instruction.opcode == Opcode::kInput) {
      values.push_back(input);
      continue;
    }
    if (instruction.opcode == Opcode::kConstant) {
      values.push_back({instruction.immediate});
      continue;
    }
    std::vector<Scalar> operands;
    std::vector<RegisterType> types;
    for (int i = 0; i < operand_count(instruction.opcode); ++i) {
      operands.push_back(values[instruction.operands[static_cast<size_t>(i)]]);
      types.push_back(program.code()[instruction.operands[static_cast<size_t>(i)]].type);
    }
    values.push_back(evaluate(instruction, operands, types));
  }
  return values[program.results()[0].reg];
}

bool same(RegisterType type, Scalar a, Scalar b, bool any_zero) {
  if (a == b) return true;
  if (!is_float(type)) return false;
  const double x = converted(type, a, RegisterType::kF64).as<double>();
  const double y = converted(type, b, RegisterType::kF64).as<double>();
  return (std::isnan(x) && std::isnan(y)) || (any_zero && x == 0 && y == 0);
}

using Step = std::function<Pair(Writer&, Pair)>;

struct NamedStep {
  std::string name;
  bool any_zero = false;  // min and max may give either
  Step step;
};

// All instructions of one operand, and of two with a special constant or the same one twice.
std::vector<NamedStep> steps_of(RegisterType type) {
  std::vector<NamedStep> steps;
  for (const RegisterType to : kTypes)
    if (to != type)
      steps.push_back({"cast to " + std::string(to_string(to)), false,
                       [=](Writer& writer, Pair x) { return writer.cast(x, to); }});
  for (size_t i = static_cast<size_t>(Opcode::kNeg); i < static_cast<size_t>(Opcode::kSelect);
       ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const bool any_zero = opcode == Opcode::kMin || opcode == Opcode::kMax;
    const RegisterType two[] = {type, type};
    if (operand_count(opcode) == 1) {
      if (takes(opcode, std::span(two).first(1)))
        steps.push_back({std::string(to_string(opcode)), false,
                         [=](Writer& writer, Pair x) { return writer.apply(opcode, x); }});
      continue;
    }
    if (!takes(opcode, two)) continue;
    steps.push_back({std::string(to_string(opcode)) + " with itself", any_zero,
                     [=](Writer& writer, Pair x) { return writer.apply(opcode, x, x); }});
    for (const Scalar value : values_of(type)) {
      const std::string text =
          std::string(to_string(opcode)) + " by bits " + std::to_string(value.bits);
      steps.push_back({text + " on the right", any_zero, [=](Writer& writer, Pair x) {
                         return writer.apply(opcode, x, writer.literal(type, value));
                       }});
      steps.push_back({text + " on the left", any_zero, [=](Writer& writer, Pair x) {
                         return writer.apply(opcode, writer.literal(type, value), x);
                       }});
    }
  }
  return steps;
}

class Simplify : public ::testing::TestWithParam<RegisterType> {};

// Of two in a row, the builder looks through the second at the first only where both are these.
bool is_looked_through(const NamedStep& step) {
  for (const char* name : {"cast", "neg", "not", "bitnot", "abs", "sign", "ceil", "floor", "rint",
                           "trunc", "sqrt", "min", "max"})
    if (step.name.starts_with(name)) return true;
  return false;
}

TEST_P(Simplify, KeepsEveryValue) {
  const RegisterType type = GetParam();
  const DataType dtype = storage(type);
  const auto expect_same = [&](const std::vector<const NamedStep*>& steps, Scalar input) {
    ProgramBuilder builder;
    Writer writer(builder);
    Pair x{builder.input(0, dtype), input};
    std::string text;
    bool any_zero = false;
    for (const NamedStep* step : steps) {
      x = step->step(writer, x);
      text += step->name + "; ";
      any_zero |= step->any_zero;
    }
    const Program program = builder.finish(x.reg, storage(x.reg.type));
    ASSERT_TRUE(same(x.reg.type, run(program, input), x.value, any_zero))
        << text << "of bits " << input.bits << " became " << to_string(program);
  };
  const std::vector<Scalar> inputs = values_of(type);
  for (const NamedStep& first : steps_of(type)) {
    ProgramBuilder builder;
    Writer writer(builder);
    const Pair between = first.step(writer, {builder.input(0, dtype), inputs[0]});
    for (const Scalar input : inputs) expect_same({&first}, input);
    if (!is_looked_through(first)) continue;
    for (const NamedStep& second : steps_of(between.reg.type)) {
      if (!is_looked_through(second)) continue;
      for (const Scalar input : inputs) expect_same({&first, &second}, input);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Simplify, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

struct Form {
  std::string_view written, simplified;
};

class SimplifiedForm : public ::testing::TestWithParam<Form> {};

TEST_P(SimplifiedForm, IsThis) {
  EXPECT_EQ(to_string(parse_program(GetParam().written)), GetParam().simplified);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, SimplifiedForm,
    ::testing::Values(Form{"(f32)->(f32) sub(mul($0,1f32),0f32)", "(f32)->(f32) $0"},
                      Form{"(f32)->(f32) add($0,0f32)", "(f32)->(f32) add($0,0f32)"},
                      Form{"(f32)->(f32) mul($0,-1f32)", "(f32)->(f32) neg($0)"},
                      Form{"(f32)->(f32) max(max($0,0f32),0f32)", "(f32)->(f32) max($0,0f32)"},
                      Form{"(f32)->(f32) max(min(max($0,0f32),6f32),-1f32)",
                           "(f32)->(f32) min(max($0,0f32),6f32)"},
                      Form{"(f32)->(f32) max(abs($0),0f32)", "(f32)->(f32) abs($0)"},
                      Form{"(f32)->(f32) max(exp($0),1f32)", "(f32)->(f32) max(exp($0),1f32)"},
                      Form{"(f32)->(f32) f32(f64($0))", "(f32)->(f32) $0"},
                      Form{"(i32)->(u32) u32(f64($0))", "(i32)->(u32) u32(f64($0))"},
                      Form{"(i32)->(f32) f32(i64($0))", "(i32)->(f32) f32($0)"},
                      Form{"(i64)->(i64) i64(f64($0))", "(i64)->(i64) i64(f64($0))"},
                      Form{"(bool,f32)->(f32) select(not($0),$1,1f32)",
                           "(bool,f32)->(f32) select($0,1f32,$1)"},
                      Form{"(bool)->(bool) select($0,0bool,1bool)", "(bool)->(bool) not($0)"},
                      Form{"(u32)->(u32) abs(neg($0))", "(u32)->(u32) abs(neg($0))"}));

}  // namespace
}  // namespace anneal
