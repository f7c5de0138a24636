// Random programs: their meaning survives normalisation, their form does not depend on how they
// were built, and text and bytes bring them back. Damaged bytes never do harm.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "anneal/core/bytes.h"
#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/program/program.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

using Random = std::mt19937;

template <class T>
const T& one_of(Random& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

// As written, before anything is folded, ordered or shared.
struct Draft {
  std::vector<DataType> inputs;
  std::vector<Instruction> code;
  std::vector<std::pair<uint16_t, DataType>> results;

  std::vector<RegisterType> operand_types(const Instruction& instruction) const {
    std::vector<RegisterType> types;
    for (int i = 0; i < operand_count(instruction.opcode); ++i)
      types.push_back(code[instruction.operands[i]].type);
    return types;
  }
};

DataType random_dtype(Random& random) {
  return all_dtypes()[random() % (all_dtypes().size() - 1)];  // the last is kString
}

Scalar random_value(Random& random, DataType dtype) {
  std::byte bytes[8];
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  if (dtype == DataType::kBool) bytes[0] &= std::byte{1};
  if (dtype == DataType::kF32 && random() % 2 == 0) {
    static constexpr float kValues[] = {0, -0.0f, 1, -1, 0.5f, 2.5f, 300, 70000, INFINITY, NAN};
    return Scalar::of(kValues[random() % std::size(kValues)]);
  }
  if (random() % 3 == 0 && !is_float(dtype))  // small, so that shifts and powers are not all 0
    std::fill(bytes + 1, bytes + 8, std::byte{0});
  return load_scalar(dtype, bytes);
}

Draft random_draft(Random& random) {
  Draft draft;
  for (size_t i = random() % 4; i > 0; --i) {
    draft.inputs.push_back(random_dtype(random));
    draft.code.push_back(
        {Opcode::kInput, register_type(draft.inputs.back()), {}, draft.inputs.size() - 1});
  }
  for (size_t i = 1 + random() % 4; i > 0; --i) {
    const DataType dtype = random_dtype(random);
    draft.code.push_back(
        {Opcode::kConstant, register_type(dtype), {}, random_value(random, dtype).bits});
  }
  if (random() % 3 == 0)
    draft.code.push_back({Opcode::kIndex, RegisterType::kI64, {}, random() % 8});

  for (size_t tries = random() % 400; tries > 0; --tries) {
    Instruction next{static_cast<Opcode>(3 + random() % (kOpcodeCount - 3)), {}, {}, 0};
    for (int i = 0; i < operand_count(next.opcode); ++i)
      next.operands[i] = static_cast<uint16_t>(random() % draft.code.size());
    const auto types = draft.operand_types(next);
    switch (next.opcode) {
      case Opcode::kCast:
        next.type = static_cast<RegisterType>(random() % kRegisterTypeCount);
        break;
      case Opcode::kRound:
      case Opcode::kSaturate: {
        const DataType dtype = random_dtype(random);
        next.immediate = static_cast<uint64_t>(dtype);
        next.type = register_type(dtype);
        break;
      }
      default:
        next.type = result_type(next.opcode, types);
    }
    if (fault(next, types).empty()) draft.code.push_back(next);
  }
  for (size_t i = 1 + random() % 3; i > 0; --i) {
    const auto reg = static_cast<uint16_t>(random() % draft.code.size());
    std::vector<DataType> fitting;
    for (const DataType dtype : all_dtypes())
      if (dtype != DataType::kString && register_type(dtype) == draft.code[reg].type)
        fitting.push_back(dtype);
    draft.results.emplace_back(reg, one_of(random, fitting));
  }
  return draft;
}

Reg emit(ProgramBuilder& builder, const Instruction& instruction, DataType input,
         const std::array<Reg, 3>& operands) {
  const auto dtype = static_cast<DataType>(instruction.immediate);
  const Scalar value{instruction.immediate};
  switch (instruction.opcode) {
    case Opcode::kInput:
      return builder.input(static_cast<int>(instruction.immediate), input);
    case Opcode::kConstant:
      if (instruction.type == RegisterType::kF32) return builder.constant(value.as<float>());
      if (instruction.type == RegisterType::kF64) return builder.constant(value.as<double>());
      return builder.constant(instruction.type, value.as<int64_t>());
    case Opcode::kIndex:
      return builder.index(static_cast<int>(instruction.immediate));
    case Opcode::kCast:
      return builder.cast(operands[0], instruction.type);
    case Opcode::kRound:
      return builder.round(operands[0], dtype);
    case Opcode::kSaturate:
      return builder.saturate(operands[0], dtype);
    case Opcode::kSelect:
      return builder.select(operands[0], operands[1], operands[2]);
    default:
      return operand_count(instruction.opcode) == 1
                 ? builder.apply(instruction.opcode, operands[0])
                 : builder.apply(instruction.opcode, operands[0], operands[1]);
  }
}

// Builds the draft from its results backwards, in a random order, with random operands swapped.
Program build(const Draft& draft, Random& random) {
  ProgramBuilder builder;
  std::vector<std::optional<Reg>> regs(draft.code.size());
  const std::function<Reg(uint16_t)> made = [&](uint16_t at) {
    if (regs[at]) return *regs[at];
    Instruction instruction = draft.code[at];
    std::vector<int> order;
    for (int i = 0; i < operand_count(instruction.opcode); ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    std::array<Reg, 3> operands;
    for (const int i : order) operands[i] = made(instruction.operands[i]);
    if (is_commutative(instruction.opcode) && random() % 2 == 0)
      std::swap(operands[0], operands[1]);
    const bool is_input = instruction.opcode == Opcode::kInput;
    regs[at] = emit(builder, instruction,
                    is_input ? draft.inputs[instruction.immediate] : DataType::kF32, operands);
    return *regs[at];
  };
  for (size_t i = 0; i < draft.inputs.size(); ++i)
    builder.input(static_cast<int>(i), draft.inputs[i]);
  for (size_t i = random() % 8; i > 0; --i) made(random() % draft.code.size());
  std::vector<std::pair<Reg, DataType>> results;
  for (const auto& [reg, dtype] : draft.results) results.emplace_back(made(reg), dtype);
  return builder.finish(results);
}

using Indices = std::array<int64_t, 8>;

std::vector<Scalar> values_of(std::span<const Instruction> code, const std::vector<Scalar>& inputs,
                              const Indices& indices) {
  std::vector<Scalar> values;
  for (const Instruction& instruction : code) {
    if (instruction.opcode == Opcode::kInput) {
      values.push_back(inputs[instruction.immediate]);
    } else if (instruction.opcode == Opcode::kConstant) {
      values.push_back({instruction.immediate});
    } else if (instruction.opcode == Opcode::kIndex) {
      values.push_back(Scalar::of(indices[instruction.immediate]));
    } else {
      std::vector<Scalar> operands;
      std::vector<RegisterType> types;
      for (int i = 0; i < operand_count(instruction.opcode); ++i) {
        operands.push_back(values[instruction.operands[i]]);
        types.push_back(code[instruction.operands[i]].type);
      }
      values.push_back(evaluate(instruction, operands, types));
    }
  }
  return values;
}

Scalar rounded(Scalar value, DataType dtype) {
  std::byte bytes[8];
  store_scalar(dtype, value, bytes);
  return load_scalar(dtype, bytes);
}

bool same(Scalar a, Scalar b, DataType dtype) {
  if (dtype == DataType::kF64 && std::isnan(a.as<double>())) return std::isnan(b.as<double>());
  if (is_float(dtype) && dtype != DataType::kF64 && std::isnan(a.as<float>()))
    return std::isnan(b.as<float>());
  return a == b;
}

Program inlined_in_a_fresh_builder(const Program& program) {
  ProgramBuilder builder;
  std::vector<Reg> inputs;
  for (size_t i = 0; i < program.inputs().size(); ++i)
    inputs.push_back(builder.input(static_cast<int>(i), program.inputs()[i]));
  const std::vector<Reg> regs = builder.inline_program(program, inputs);
  std::vector<std::pair<Reg, DataType>> results;
  for (size_t i = 0; i < regs.size(); ++i)
    results.emplace_back(regs[i], program.results()[i].dtype);
  return builder.finish(results);
}

std::vector<std::byte> bytes_of(const Program& program) {
  ByteWriter to;
  save(to, program);
  return to.take();
}

Program program_from(std::span<const std::byte> bytes) {
  ByteReader from(bytes, "program");
  Program program = load_program(from);
  from.expect_end();
  return program;
}

constexpr unsigned kPrograms = 2000;

TEST(RandomProgram, HasOneFormHoweverItIsMade) {
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    Random random(seed);
    const Draft draft = random_draft(random);
    const Program program = build(draft, random);
    const std::string text = to_string(program);
    ASSERT_EQ(build(draft, random), program) << "seed " << seed << "\n" << text;
    ASSERT_EQ(inlined_in_a_fresh_builder(program), program) << "seed " << seed << "\n" << text;
    ASSERT_EQ(parse_program(text), program) << "seed " << seed << "\n" << text;
    ASSERT_EQ(program_from(bytes_of(program)), program) << "seed " << seed << "\n" << text;
    ASSERT_EQ(hash(program_from(bytes_of(program))), hash(program));
  }
}

TEST(RandomProgram, KeepsItsMeaning) {
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    Random random(seed);
    const Draft draft = random_draft(random);
    const Program program = build(draft, random);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<Scalar> inputs;
      for (const DataType dtype : draft.inputs) inputs.push_back(random_value(random, dtype));
      Indices indices;
      for (int64_t& index : indices) index = random() % 1000;
      const auto before = values_of(draft.code, inputs, indices);
      const auto after = values_of(program.code(), inputs, indices);
      for (size_t i = 0; i < draft.results.size(); ++i) {
        const auto [reg, dtype] = draft.results[i];
        const Scalar value = after[program.results()[i].reg];
        ASSERT_TRUE(same(rounded(before[reg], dtype), value, dtype))
            << "seed " << seed << " result " << i << "\n"
            << to_string(program);
        ASSERT_TRUE(same(rounded(value, dtype), value, dtype)) << "a result fits its type";
      }
    }
  }
}

// Each truncation, and bits turned anywhere: an Error, or a program in normal form.
TEST(RandomProgram, DamagedBytesGiveAnErrorOrAProgram) {
  int loaded = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<std::byte> bytes = bytes_of(build(random_draft(random), random));
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_THROW(program_from(std::span(bytes).first(size)), Error);
    for (int i = 0; i < 300; ++i) {
      std::vector<std::byte> damaged = bytes;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
        damaged[random() % damaged.size()] ^= static_cast<std::byte>(1u << random() % 8);
      try {
        const Program program = program_from(damaged);
        EXPECT_EQ(program_from(bytes_of(program)), program);
        EXPECT_EQ(parse_program(to_string(program)), program);
        ++loaded;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan) << error.what();
      }
    }
  }
  EXPECT_GT(loaded, 100);
}

TEST(RandomProgram, DamagedTextGivesAnErrorOrAProgram) {
  constexpr std::string_view kCharacters = "(),;=$% 0123456789abcdefnorstux-+._>";
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::string text = to_string(build(random_draft(random), random));
    for (int i = 0; i < 100; ++i) {
      std::string damaged = text;
      for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits)
        damaged[random() % damaged.size()] = kCharacters[random() % kCharacters.size()];
      try {
        const Program program = parse_program(damaged);
        EXPECT_EQ(parse_program(to_string(program)), program);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what() << "\n" << damaged;
      }
    }
  }
}

// What the loader checks, one thing at a time.
TEST(ProgramBytes, WrongOnesAreRefused) {
  const auto expect_refusal = [](const char* text, size_t at, uint8_t value, const char* why) {
    std::vector<std::byte> bytes = bytes_of(parse_program(text));
    bytes.at(at) = static_cast<std::byte>(value);
    try {
      program_from(bytes);
      ADD_FAILURE() << "loaded; expected: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIncompatiblePlan);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  // inputs: count at 0, the type at 4; code: count at 5, instructions of 16 bytes at 9 and 25;
  // results: count at 41, register at 45, type at 47
  const char* text = "(f32)->(f32) exp($0)";
  ASSERT_EQ(bytes_of(parse_program(text)).size(), 48u);
  expect_refusal(text, 0, 200, "a count of 200");
  expect_refusal(text, 4, 0, "a program with the type 0");
  expect_refusal(text, 4, 14, "a program with the type 14");
  expect_refusal(text, 4, 7, "an input that the program does not have");
  expect_refusal(text, 5, 3, "a count of 3");
  expect_refusal(text, 17, 1, "an input that the program does not have");
  expect_refusal(text, 11, 1, "an operand where none is taken");
  expect_refusal(text, 25, 200, "the opcode 200");
  expect_refusal(text, 25, static_cast<uint8_t>(Opcode::kNot), "not takes bool, not f32");
  expect_refusal(text, 26, 7, "the register type 7");
  expect_refusal(text, 26, 1, "exp does not give f64");
  expect_refusal(text, 27, 1, "an operand used before it is made");
  expect_refusal(text, 29, 1, "an operand where none is taken");
  expect_refusal(text, 33, 1, "exp with an immediate");
  expect_refusal(text, 45, 2, "a result that no instruction makes");
  expect_refusal(text, 47, 3, "a result that is not rounded to its type");
  expect_refusal(text, 47, 2, "a result that is not rounded to its type");
  expect_refusal("(f32)->(f16) round_f16($0)", 33, 1, "round_f32 of f32");
  expect_refusal("(f32)->(f16) round_f16($0)", 33, 99, "round to the unknown type 99");
  expect_refusal("()->(i64) index(0)", 16, 8, "an index of axis 8");
  expect_refusal("()->(i32) 1i32", 20, 1, "a constant that is wider than i32");
  expect_refusal("()->(bool) 1bool", 16, 2, "a constant that is wider than bool");
}

}  // namespace
}  // namespace anneal
