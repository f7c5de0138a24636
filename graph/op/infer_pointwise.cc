// Pointwise, and programs in general: types, broadcasting, and the contents that follow from known
// contents. A register is known as a scalar, evaluated by the reference meaning, as a size
// expression where every step provably neither wraps nor rounds, or as a real of the size table.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/size/real.h"
#include "anneal/graph/op/infer_rules.h"
#include "anneal/graph/program/program_rules.h"

namespace anneal {
namespace {

using rules::refuse;

// Elements times instructions that are worth evaluating.
constexpr int64_t kMaxEvaluations = 1 << 20;

struct Limits {
  int64_t min, max;
  bool hold(const Bounds& range) const { return range.min >= min && range.max <= max; }
};

// The integers that a register or a storage type holds, each exactly.
Limits limits_of(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return {-(1 << 24), 1 << 24};
    case DataType::kF64:
      return {-(int64_t{1} << 53), int64_t{1} << 53};
    case DataType::kF16:
      return {-2048, 2048};
    case DataType::kBF16:
      return {-256, 256};
    case DataType::kI8:
      return {INT8_MIN, INT8_MAX};
    case DataType::kI16:
      return {INT16_MIN, INT16_MAX};
    case DataType::kI32:
      return {INT32_MIN, INT32_MAX};
    case DataType::kI64:
      return {INT64_MIN, INT64_MAX};
    case DataType::kU8:
      return {0, UINT8_MAX};
    case DataType::kU16:
      return {0, UINT16_MAX};
    case DataType::kU32:
      return {0, UINT32_MAX};
    case DataType::kU64:
      return {0, INT64_MAX};
    case DataType::kBool:
      return {0, 1};
    case DataType::kString:
      break;
  }
  return {0, -1};
}

Scalar scalar_of(RegisterType type, int64_t value) {
  switch (type) {
    case RegisterType::kF32:
      return Scalar::of(static_cast<float>(value));
    case RegisterType::kF64:
      return Scalar::of(static_cast<double>(value));
    case RegisterType::kI32:
    case RegisterType::kU32:
      return Scalar::of(static_cast<uint32_t>(value));
    case RegisterType::kI64:
    case RegisterType::kU64:
      return Scalar::of(value);
    case RegisterType::kBool:
      break;
  }
  return Scalar::of(static_cast<uint8_t>(value != 0));
}

// The known value of a register for one element: the scalar, or an integer as an expression, or
// (unknown size) nothing.
struct ElementValue {
  std::optional<Scalar> scalar;
  Size size = Size::unknown();
  bool nothing() const { return !scalar && size.is_unknown(); }
  bool operator==(const ElementValue&) const = default;
};

// One element of a program.
class ElementRules {
 public:
  ElementRules(const Program& program, SizeTable& sizes) : program_(program), sizes_(sizes) {}

  std::vector<ElementValue> run(std::span<const ElementValue> loads, const Dims& at) {
    std::vector<ElementValue> registers;
    for (const Instruction& instruction : program_.code()) {
      switch (instruction.opcode) {
        case Opcode::kInput:
          registers.push_back(loads[instruction.immediate]);
          break;
        case Opcode::kConstant:
          registers.push_back({Scalar{instruction.immediate}, Size::unknown()});
          break;
        case Opcode::kIndex:
          registers.push_back(
              known_as(instruction.type, at[static_cast<int>(instruction.immediate)]));
          break;
        default:
          registers.push_back(compute(instruction, registers));
      }
    }
    return registers;
  }

  ElementValue known_as(RegisterType type, Size size) const {
    if (RealSizes::is_real(sizes_, size))
      return is_float_register(type) ? ElementValue{std::nullopt, size} : ElementValue{};
    if (size.is_unknown() || !limits_of(storage_type(type)).hold(sizes_.range(size))) return {};
    if (size.known()) return {scalar_of(type, size.value()), Size::unknown()};
    return {std::nullopt, size};
  }

  // A float that is no whole number is a real.
  Size size_of(const ElementValue& known, RegisterType type) const {
    if (!known.scalar) return known.size;
    if (type == RegisterType::kF32)
      return RealSizes(sizes_).constant(static_cast<double>(known.scalar->as<float>()),
                                        RealType::kF32);
    if (type == RegisterType::kF64)
      return RealSizes(sizes_).constant(known.scalar->as<double>(), RealType::kF64);
    return rules::whole_number(type, *known.scalar);
  }

 private:
  ElementValue compute(const Instruction& instruction, std::span<const ElementValue> registers) {
    const int count = operand_count(instruction.opcode);
    std::array<ElementValue, 3> operands;
    std::array<RegisterType, 3> types{};
    bool scalars = true;
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      operands[at] = registers[instruction.operands[at]];
      types[at] = program_.code()[instruction.operands[at]].type;
      scalars &= operands[at].scalar.has_value();
    }
    if (scalars) {
      std::array<Scalar, 3> values;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) values[i] = *operands[i].scalar;
      const auto used = static_cast<size_t>(count);
      return {evaluate(instruction, std::span(values).first(used), std::span(types).first(used)),
              Size::unknown()};
    }
    if (instruction.opcode == Opcode::kSelect) {
      if (operands[0].scalar)
        return operands[0].scalar->as<uint8_t>() != 0 ? operands[1] : operands[2];
      if (operands[1] == operands[2]) return operands[1];
    }
    try {
      const Size a = size_of(operands[0], types[0]), b = size_of(operands[1], types[1]);
      if (instruction.opcode == Opcode::kSelect)
        return known_as(instruction.type, selected(a, b, size_of(operands[2], types[2])));
      const ElementValue whole = known_as(instruction.type, symbolic(instruction, a, b));
      if (!whole.nothing()) return whole;
      return known_as(instruction.type, real(instruction, a, b));
    } catch (const Error& error) {
      // Overflow, or an expression beyond the limit: what wraps is not a size.
      if (error.code() != ErrorCode::kInvalidModel && error.code() != ErrorCode::kUnsupported)
        throw;
      return {};
    }
  }

  // condition is 0 or 1.
  Size selected(Size condition, Size yes, Size no) {
    return sizes_.add(no, sizes_.mul(condition, sizes_.sub(yes, no)));
  }

  // The result as a real of the size table, or unknown().
  Size real(const Instruction& instruction, Size a, Size b) {
    const bool is_float = is_float_register(instruction.type);
    if (instruction.opcode == Opcode::kCast && !is_float) return cast_of_real(instruction.type, a);
    const auto op = real_op_of(instruction.opcode);
    if (!op || !is_float) return Size::unknown();
    return RealSizes(sizes_).operation(
        *op, instruction.type == RegisterType::kF32 ? RealType::kF32 : RealType::kF64, a,
        operand_count(instruction.opcode) == 2 ? b : Size(0));
  }

  // A cast saturates.
  Size cast_of_real(RegisterType to, Size a) {
    if (!RealSizes::is_real(sizes_, a) || to == RegisterType::kBool || to == RegisterType::kU64)
      return Size::unknown();
    if (to == RegisterType::kI64) return RealSizes(sizes_).truncate(a);
    const Limits limits = limits_of(storage_type(to));
    return sizes_.min(sizes_.max(RealSizes(sizes_).truncate(a), limits.min), limits.max);
  }

  static std::optional<RealOp> real_op_of(Opcode opcode) {
    switch (opcode) {
      case Opcode::kCast:
        return RealOp::kConvert;
      case Opcode::kAdd:
        return RealOp::kAdd;
      case Opcode::kSub:
        return RealOp::kSub;
      case Opcode::kMul:
        return RealOp::kMul;
      case Opcode::kDiv:
        return RealOp::kDiv;
      case Opcode::kMin:
        return RealOp::kMin;
      case Opcode::kMax:
        return RealOp::kMax;
      case Opcode::kNeg:
        return RealOp::kNeg;
      case Opcode::kAbs:
        return RealOp::kAbs;
      case Opcode::kSqrt:
        return RealOp::kSqrt;
      case Opcode::kFloor:
        return RealOp::kFloor;
      case Opcode::kCeil:
        return RealOp::kCeil;
      case Opcode::kRoundEven:
        return RealOp::kRoundEven;
      case Opcode::kTrunc:
        return RealOp::kTrunc;
      default:
        return std::nullopt;
    }
  }

  // The result as a size, or unknown(). a and b are the operands' values where those are integers.
  Size symbolic(const Instruction& instruction, Size a, Size b) {
    if (RealSizes::is_real(sizes_, a) || RealSizes::is_real(sizes_, b)) return Size::unknown();
    if (operand_count(instruction.opcode) == 1) return unary(instruction, a);
    const Size lone = a.is_unknown() ? b : a;
    if (instruction.opcode == Opcode::kAnd && lone == Size(0)) return 0;
    if (instruction.opcode == Opcode::kOr && lone == Size(1)) return 1;
    if (a.is_unknown() || b.is_unknown()) return Size::unknown();
    return binary(instruction, a, b);
  }

  Size unary(const Instruction& instruction, Size a) {
    if (a.is_unknown()) return a;
    const Bounds range = sizes_.range(a);
    switch (instruction.opcode) {
      case Opcode::kCast:
        if (instruction.type == RegisterType::kBool) return differ(a, 0);
        return a;  // known_as() sees whether it fits
      case Opcode::kRound:
      case Opcode::kSaturate:
        return limits_of(static_cast<DataType>(instruction.immediate)).hold(range)
                   ? a
                   : Size::unknown();
      case Opcode::kNeg:
        // -(0.0) is not the integer 0.
        if (is_float_register(instruction.type) && range.min <= 0 && range.max >= 0)
          return Size::unknown();
        return sizes_.sub(0, a);
      case Opcode::kAbs:
        return magnitude(a);
      case Opcode::kNot:
        return sizes_.sub(1, a);
      case Opcode::kSign:
        if (range.min > 0) return 1;
        return range.max < 0 ? Size(-1) : Size::unknown();
      case Opcode::kCeil:
      case Opcode::kFloor:
      case Opcode::kRoundEven:
      case Opcode::kTrunc:
        return a;
      default:
        return Size::unknown();
    }
  }

  Size binary(const Instruction& instruction, Size a, Size b) {
    const Bounds of_a = sizes_.range(a), of_b = sizes_.range(b);
    const bool is_float = is_float_register(instruction.type);
    switch (instruction.opcode) {
      case Opcode::kAdd:
        return sizes_.add(a, b);
      case Opcode::kSub:
        return sizes_.sub(a, b);
      case Opcode::kMul:
        // 0 times a negative number is -0 in floats.
        if (is_float && (of_a.min < 0 || of_b.min < 0)) return Size::unknown();
        return sizes_.mul(a, b);
      case Opcode::kDiv: {
        if (of_a.min < 0 || of_b.min <= 0) return Size::unknown();
        const Size quotient = sizes_.floor_div(a, b);
        return !is_float || sizes_.mul(quotient, b) == a ? quotient : Size::unknown();
      }
      case Opcode::kMod:
      case Opcode::kRem:
        if (of_b.min <= 0 || (of_a.min < 0 && (is_float || instruction.opcode == Opcode::kRem)))
          return Size::unknown();
        if (of_a.min >= 0 && of_a.max < of_b.min) return a;
        return sizes_.sub(a, sizes_.mul(sizes_.floor_div(a, b), b));
      case Opcode::kMin:
        return sizes_.min(a, b);
      case Opcode::kMax:
        return sizes_.max(a, b);
      case Opcode::kEqual:
        return sizes_.sub(1, differ(a, b));
      case Opcode::kLess:
        return is_positive(sizes_.sub(b, a));
      case Opcode::kLessEqual:
        return sizes_.sub(1, is_positive(sizes_.sub(a, b)));
      case Opcode::kAnd:
        return sizes_.min(a, b);
      case Opcode::kOr:
        return sizes_.max(a, b);
      default:
        return Size::unknown();
    }
  }

  Size magnitude(Size a) { return sizes_.max(a, sizes_.sub(0, a)); }
  // 1 if the integer is positive, else 0.
  Size is_positive(Size a) { return sizes_.min(sizes_.max(a, 0), 1); }
  Size differ(Size a, Size b) {
    const Size gap = sizes_.sub(a, b);
    const Bounds range = sizes_.range(gap);
    return range.min > 0 || range.max < 0 ? Size(1) : is_positive(magnitude(gap));
  }
  static bool is_float_register(RegisterType type) {
    return type == RegisterType::kF32 || type == RegisterType::kF64;
  }

  const Program& program_;
  SizeTable& sizes_;
};

// Row-major strides of an input in the output's axes: 0 where it is broadcast.
Dims broadcast_strides(const Dims& dims, int rank) {
  const Dims own = row_major_strides(dims);
  Dims strides = Dims::filled(rank, 0);
  for (int axis = 0; axis < dims.rank(); ++axis)
    if (dims[axis] != 1) strides[axis + rank - dims.rank()] = own[axis];
  return strides;
}

// The known contents of an input, row-major; empty if nothing is known, or the input has no
// contents.
std::vector<ElementValue> known_contents(const InferInputs& inputs, int i,
                                         const ElementRules& element) {
  const Shape& shape = inputs.shape(i);
  const RegisterType type = register_type(inputs.dtype(i));
  std::vector<ElementValue> contents;
  if (!known(shape) || count(dims_of(shape)) > kMaxKnownElements) return contents;
  if (const TensorView* view = inputs.value(i); view != nullptr && view->data != nullptr) {
    if (view->dims != dims_of(shape)) return contents;
    const auto width = static_cast<int64_t>(size_of(view->dtype));
    rules::for_elements(view->dims, [&](const Dims& at) {
      const std::byte* from = view->data + rules::flat_index(at, view->strides) * width;
      contents.push_back({load_scalar(view->dtype, from), Size::unknown()});
    });
  } else if (const rules::Elements elements = inputs.elements(i)) {
    for (const Size& size : *elements) contents.push_back(element.known_as(type, size));
  }
  return contents;
}

// The contents of each result, row-major; empty if nothing can be known.
std::vector<std::vector<Size>> known_results(const Program& program, const Shape& shape,
                                             const InferInputs& inputs) {
  if (!known(shape)) return {};
  const auto instructions = static_cast<int64_t>(program.code().size());
  int64_t total = 1;
  for (const Size& size : shape) {
    if (size.value() > kMaxKnownElements) return {};
    total *= size.value();
    if (total > std::min(kMaxKnownElements, kMaxEvaluations / std::max<int64_t>(1, instructions)))
      return {};
  }
  for (const InferInput& input : inputs.all())
    if (input.value == nullptr && !input.fact->elements) return {};
  const auto results = program.results();
  std::vector<std::vector<Size>> known(results.size());
  if (total == 0) return known;

  ElementRules element(program, inputs.sizes());
  std::vector<std::vector<ElementValue>> contents;
  std::vector<Dims> strides;
  for (int i = 0; i < inputs.count(); ++i) {
    contents.push_back(known_contents(inputs, i, element));
    if (contents.back().empty()) return {};
    strides.push_back(broadcast_strides(dims_of(inputs.shape(i)), shape.rank()));
    if (contents.back().size() != static_cast<size_t>(count(dims_of(inputs.shape(i))))) return {};
  }
  std::vector<ElementValue> loads(contents.size());
  rules::for_elements(dims_of(shape), [&](const Dims& at) {
    for (size_t i = 0; i < contents.size(); ++i)
      loads[i] = contents[i][static_cast<size_t>(rules::flat_index(at, strides[i]))];
    const auto registers = element.run(loads, at);
    for (size_t r = 0; r < results.size(); ++r)
      known[r].push_back(
          element.size_of(registers[results[r].reg], program.code()[results[r].reg].type));
  });
  return known;
}

}  // namespace

namespace rules {

Facts apply_program(const Program& program, const Shape& shape, const InferInputs& inputs) {
  if (program.empty()) refuse("a program without results");
  if (program.inputs().size() != static_cast<size_t>(inputs.count()))
    refuse(fmt::format("{} inputs for a program of {}", inputs.count(), program.inputs().size()));
  for (int i = 0; i < inputs.count(); ++i) {
    require_dtype(inputs, i, program.inputs()[static_cast<size_t>(i)]);
    const Shape& own = inputs.shape(i);
    if (own.rank() > shape.rank())
      refuse(fmt::format("input {} has rank {}, the output {}", i, own.rank(), shape.rank()));
    for (int axis = 0; axis < own.rank(); ++axis) {
      const Size to = shape[axis + shape.rank() - own.rank()];
      if (surely_differ(own[axis], 1, inputs.sizes()) &&
          surely_differ(own[axis], to, inputs.sizes()))
        refuse(fmt::format("input {} of shape {} does not broadcast to {}", i,
                           inputs.sizes().text(own), inputs.sizes().text(shape)));
    }
  }
  for (const Instruction& instruction : program.code())
    if (instruction.opcode == Opcode::kIndex &&
        instruction.immediate >= static_cast<uint64_t>(shape.rank()))
      refuse(fmt::format("the program uses index({}) in {} axes", instruction.immediate,
                         shape.rank()));

  auto known = known_results(program, shape, inputs);
  Facts facts;
  for (size_t r = 0; r < program.results().size(); ++r)
    facts.push_back(make_fact(program.results()[r].dtype, shape,
                              known.empty() ? Elements() : std::move(known[r])));
  return facts;
}

Fact apply_map(const Program& map, const InferInputs& inputs, int further) {
  if (map.empty()) return make_fact(inputs.dtype(0), inputs.shape(0), inputs.elements(0));
  if (map.results().size() != 1) refuse(fmt::format("a map with {} results", map.results().size()));
  std::vector<InferInput> taken{inputs.all()[0]};
  Shape shape = inputs.shape(0);
  for (int i = further; i < inputs.count(); ++i) {
    taken.push_back(inputs.all()[static_cast<size_t>(i)]);
    shape = broadcast(shape, inputs.shape(i), inputs.sizes());
  }
  return with_context(
      [] { return "map"; },
      [&] { return apply_program(map, shape, InferInputs(taken, inputs.sizes()))[0]; });
}

}  // namespace rules

Facts infer(const Pointwise& op, const InferInputs& inputs) {
  Shape shape = inputs.shape(0);
  for (int i = 1; i < inputs.count(); ++i)
    shape = broadcast(shape, inputs.shape(i), inputs.sizes(), inputs.demands());
  return rules::apply_program(op.program, shape, inputs);
}

}  // namespace anneal
