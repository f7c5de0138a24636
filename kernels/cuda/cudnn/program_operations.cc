#include "anneal/kernels/cuda/cudnn/program_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "anneal/kernels/cuda/cudnn/named_functions.h"

namespace anneal::cuda {
namespace {

std::optional<cudnnPointwiseMode_t> mode_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNeg:
      return CUDNN_POINTWISE_NEG;
    case Opcode::kAbs:
      return CUDNN_POINTWISE_ABS;
    case Opcode::kCeil:
      return CUDNN_POINTWISE_CEIL;
    case Opcode::kFloor:
      return CUDNN_POINTWISE_FLOOR;
    case Opcode::kSqrt:
      return CUDNN_POINTWISE_SQRT;
    case Opcode::kExp:
      return CUDNN_POINTWISE_EXP;
    case Opcode::kLog:
      return CUDNN_POINTWISE_LOG;
    case Opcode::kErf:
      return CUDNN_POINTWISE_ERF;
    case Opcode::kSin:
      return CUDNN_POINTWISE_SIN;
    case Opcode::kCos:
      return CUDNN_POINTWISE_COS;
    case Opcode::kTan:
      return CUDNN_POINTWISE_TAN;
    case Opcode::kTanh:
      return CUDNN_POINTWISE_TANH_FWD;
    case Opcode::kSigmoid:
      return CUDNN_POINTWISE_SIGMOID_FWD;
    case Opcode::kNot:
      return CUDNN_POINTWISE_LOGICAL_NOT;
    case Opcode::kAdd:
      return CUDNN_POINTWISE_ADD;
    case Opcode::kSub:
      return CUDNN_POINTWISE_SUB;
    case Opcode::kMul:
      return CUDNN_POINTWISE_MUL;
    case Opcode::kDiv:
      return CUDNN_POINTWISE_DIV;
    case Opcode::kPow:
      return CUDNN_POINTWISE_POW;
    case Opcode::kMin:
      return CUDNN_POINTWISE_MIN;
    case Opcode::kMax:
      return CUDNN_POINTWISE_MAX;
    case Opcode::kAnd:
      return CUDNN_POINTWISE_LOGICAL_AND;
    case Opcode::kOr:
      return CUDNN_POINTWISE_LOGICAL_OR;
    case Opcode::kEqual:
      return CUDNN_POINTWISE_CMP_EQ;
    case Opcode::kLess:
      return CUDNN_POINTWISE_CMP_LT;
    case Opcode::kLessEqual:
      return CUDNN_POINTWISE_CMP_LE;
    case Opcode::kSelect:
      return CUDNN_POINTWISE_BINARY_SELECT;
    default:
      return std::nullopt;
  }
}

cudnnDataType_t math_of(RegisterType type) {
  return type == RegisterType::kF32    ? CUDNN_DATA_FLOAT
         : type == RegisterType::kBool ? CUDNN_DATA_BOOLEAN
                                       : CUDNN_DATA_INT32;
}

class ProgramTranslation {
 public:
  ProgramTranslation(Operations& graph, const Program& program, const ProgramPlace& place)
      : graph_(graph),
        program_(program),
        place_(place),
        shape_(program),
        tensors_(program.code().size(), kNoTensor) {}

  Result<TensorIndex> run() {
    if (program_.results().size() != 1) return refuse("an epilogue with several results");
    uint16_t last = program_.results()[0].reg;
    if (is_rounded_by_storing(program_.results()[0]) && place_.output != kNoTensor) {
      last = shape_.at(last).operands[0];
    } else if (shape_.at(last).opcode == Opcode::kSaturate) {
      return refuse("cuDNN does not document how it rounds to 8 bits");
    }
    last_ = last;
    Result<TensorIndex> result = tensor_of(last);
    if (!result || place_.output == kNoTensor || *result == place_.output) return result;
    const TensorIndex from = *result;  // an input or a constant
    add({.mode = CUDNN_POINTWISE_IDENTITY, .x = from}, place_.output);
    return place_.output;
  }

 private:
  bool is_rounded_by_storing(const Program::Result& result) const {
    const Instruction& last = shape_.at(result.reg);
    return last.opcode == Opcode::kRound &&
           static_cast<DataType>(last.immediate & ~kByCast) == result.dtype;
  }

  struct Node {
    cudnnPointwiseMode_t mode;
    TensorIndex x = kNoTensor, b = kNoTensor, t = kNoTensor;
    std::optional<float> lower = {}, upper = {}, beta = {};
    std::optional<int64_t> axis = {};
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
  };
  void add(const Node& node, TensorIndex y) {
    graph_.operations.push_back({.kind = OperationKind::kPointwise,
                                 .math = node.math,
                                 .a = node.x,
                                 .b = node.b,
                                 .t = node.t,
                                 .y = y,
                                 .mode = node.mode,
                                 .lower = node.lower,
                                 .upper = node.upper,
                                 .beta = node.beta,
                                 .axis = node.axis});
  }

  // The place of what an instruction computes from these operands: of their broadcast shape.
  TensorIndex place_for(uint16_t reg, std::initializer_list<TensorIndex> operands,
                        cudnnDataType_t dtype) {
    if (reg == last_ && place_.output != kNoTensor) return place_.output;
    const CudnnTensor like = tensor(place_.accumulator);
    Dims dims = Dims::filled(like.dims.rank(), 1);
    for (const TensorIndex operand : operands)
      if (operand != kNoTensor)
        for (int axis = 0; axis < dims.rank(); ++axis)
          dims[axis] = std::max(dims[axis], tensor(operand).dims[axis]);
    return graph_.add_virtual(like, dims, dtype);
  }
  const CudnnTensor& tensor(TensorIndex index) const {
    return graph_.tensors[static_cast<size_t>(index)];
  }

  Result<TensorIndex> tensor_of(uint16_t reg) {
    TensorIndex& known = tensors_[reg];
    if (known != kNoTensor) return known;
    Result<TensorIndex> made = make(reg);
    if (made) tensors_[reg] = *made;
    return made;
  }

  Result<TensorIndex> make(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    if (each.opcode == Opcode::kInput)
      return each.immediate == 0 ? Result<TensorIndex>(place_.accumulator)
                                 : place_.input(static_cast<int>(each.immediate));
    if (each.opcode == Opcode::kConstant) return constant(each);
    if (each.opcode == Opcode::kCast) return cast(reg);
    if (each.opcode == Opcode::kIndex) return index(reg);
    if (each.opcode == Opcode::kRound) {
      // A value that is rounded for its storage alone may stay unrounded.
      if (is_storage_rounding(each)) return tensor_of(each.operands[0]);
      return refuse("a rounding that the model asks for in the middle of an epilogue");
    }
    if (const auto named = named_function(shape_, reg)) return function(reg, *named);
    return plain(reg);
  }

  Result<TensorIndex> constant(const Instruction& each) {
    const int rank = tensor(place_.accumulator).dims.rank();
    if (each.type == RegisterType::kF32)
      return graph_.add_value(std::bit_cast<float>(static_cast<uint32_t>(each.immediate)), rank);
    return refuse(fmt::format("a constant of type {} in an epilogue", to_string(each.type)));
  }

  // cuDNN converts what an operation reads to the type in which it computes.
  Result<TensorIndex> cast(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    const RegisterType from = shape_.at(each.operands[0]).type;
    const bool is_32_bit = from == RegisterType::kI32 || from == RegisterType::kU32;
    if (each.type == RegisterType::kF32 && is_32_bit) return tensor_of(each.operands[0]);
    return refuse(fmt::format("a conversion of {} to {}", to_string(from), to_string(each.type)));
  }

  Result<TensorIndex> index(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    if (!place_.has_axes) return refuse("coordinates in an epilogue");
    const CudnnTensor like = tensor(place_.accumulator);
    const TensorIndex y = graph_.add_virtual(like, like.dims, CUDNN_DATA_INT32);
    add({.mode = CUDNN_POINTWISE_GEN_INDEX,
         .x = place_.accumulator,
         .axis = static_cast<int64_t>(each.immediate)},
        y);
    return y;
  }

  Result<TensorIndex> function(uint16_t reg, const NamedFunction& named) {
    const Result<TensorIndex> x = tensor_of(named.x);
    if (!x) return x;
    const TensorIndex y = place_for(reg, {*x}, CUDNN_DATA_FLOAT);
    add({.mode = named.mode,
         .x = *x,
         .lower = named.lower,
         .upper = named.upper,
         .beta = named.beta},
        y);
    return y;
  }

  // acc + bias + residual as acc + residual + bias: the operands in the order in which to add them.
  std::vector<uint16_t> addends(uint16_t reg) const {
    const Instruction& outer = shape_.at(reg);
    for (const auto& [one, other] : {std::pair(0, 1), std::pair(1, 0)}) {
      const uint16_t sum = outer.operands[size_t(one)], residual = outer.operands[size_t(other)];
      const Instruction& inner = shape_.at(sum);
      if (inner.opcode != Opcode::kAdd || inner.type != RegisterType::kF32 ||
          !shape_.is_used_once(sum) || !is_whole_input(residual))
        continue;
      for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 0)})
        if (is_accumulator(inner.operands[size_t(a)]) && is_input(inner.operands[size_t(b)]))
          return {inner.operands[size_t(a)], residual, inner.operands[size_t(b)]};
    }
    return {};
  }
  bool is_input(uint16_t reg) const { return shape_.at(reg).opcode == Opcode::kInput; }
  bool is_accumulator(uint16_t reg) const { return is_input(reg) && shape_.at(reg).immediate == 0; }
  bool is_whole_input(uint16_t reg) const {
    if (!is_input(reg) || is_accumulator(reg)) return false;
    const Result<TensorIndex> whole = place_.input(static_cast<int>(shape_.at(reg).immediate));
    return whole && tensor(*whole).dims == tensor(place_.accumulator).dims;
  }

  // What an operation computes with. Coordinates have 32 bits in cuDNN, which hold every size.
  Result<TensorIndex> operand_of(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    const bool has_no_type = each.type == RegisterType::kF64 || each.type == RegisterType::kI64 ||
                             each.type == RegisterType::kU64 || each.type == RegisterType::kU32;
    if (has_no_type && each.opcode != Opcode::kIndex)
      return refuse(fmt::format("a computation in {}", to_string(each.type)));
    return tensor_of(reg);
  }

  Result<TensorIndex> plain(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    auto mode = mode_of(each.opcode);
    if (!mode) return refuse(fmt::format("cuDNN has no operation \"{}\"", to_string(each.opcode)));
    if (each.opcode == Opcode::kSelect && is_hidden(each.operands[1]) &&
        opposite_of(shape_.at(each.operands[0]).opcode) && compares_whole_numbers(each.operands[0]))
      return shown(reg);
    if (each.opcode == Opcode::kAdd && place_.residual_first)
      if (const auto order = addends(reg); !order.empty()) return sum(reg, order);
    std::array<TensorIndex, 3> operands = {kNoTensor, kNoTensor, kNoTensor};
    for (size_t i = 0; i < static_cast<size_t>(operand_count(each.opcode)); ++i) {
      const Result<TensorIndex> operand = operand_of(each.operands[i]);
      if (!operand) return operand;
      operands[i] = *operand;
    }
    const bool is_select = each.opcode == Opcode::kSelect;
    // cuDNN takes the condition last.
    if (is_select) std::ranges::rotate(operands, operands.begin() + 1);
    // a <= b as b >= a, as its pattern of a causal mask has it.
    if (const auto turned = turned_of(each.opcode); turned && compares_whole_numbers(reg)) {
      mode = turned;
      std::swap(operands[0], operands[1]);
    }
    // Its patterns have what was computed before an operand from memory.
    if (is_commutative(each.opcode) && !is_virtual(operands[0]) && is_virtual(operands[1]))
      std::swap(operands[0], operands[1]);
    const bool is_comparison = each.type == RegisterType::kBool;
    const RegisterType compared = shape_.at(each.operands[0]).type;
    const cudnnDataType_t result = math_of(each.type);
    const TensorIndex y = place_for(reg, {operands[0], operands[1], operands[2]}, result);
    add({.mode = *mode,
         .x = operands[0],
         .b = operands[1],
         .t = operands[2],
         .math = is_comparison && compared == RegisterType::kF32 ? CUDNN_DATA_FLOAT : result},
        y);
    return y;
  }

  static bool is_commutative(Opcode opcode) {
    return opcode == Opcode::kAdd || opcode == Opcode::kMul || opcode == Opcode::kMin ||
           opcode == Opcode::kMax;
  }
  bool is_virtual(TensorIndex index) const { return tensor(index).place == TensorPlace::kVirtual; }

  static std::optional<cudnnPointwiseMode_t> turned_of(Opcode opcode) {
    if (opcode == Opcode::kLess) return CUDNN_POINTWISE_CMP_GT;
    if (opcode == Opcode::kLessEqual) return CUDNN_POINTWISE_CMP_GE;
    return std::nullopt;
  }

  // A score that counts for nothing.
  bool is_hidden(uint16_t reg) const {
    return shape_.constant(reg) == -std::numeric_limits<float>::infinity();
  }
  bool compares_whole_numbers(uint16_t reg) const {
    const RegisterType type = shape_.at(shape_.at(reg).operands[0]).type;
    return type != RegisterType::kF32 && type != RegisterType::kF64;
  }
  static std::optional<cudnnPointwiseMode_t> opposite_of(Opcode opcode) {
    if (opcode == Opcode::kLess) return CUDNN_POINTWISE_CMP_GE;
    if (opcode == Opcode::kLessEqual) return CUDNN_POINTWISE_CMP_GT;
    return std::nullopt;
  }
  // select(a < b, -inf, x) as select(a >= b, x, -inf), which cuDNN recognizes as a mask. REQUIRES:
  // a and b are whole numbers, of which one is not less than the other.
  Result<TensorIndex> shown(uint16_t reg) {
    const Instruction& each = shape_.at(reg);
    const Instruction& comparison = shape_.at(each.operands[0]);
    std::vector<TensorIndex> operands;
    for (const uint16_t operand :
         {comparison.operands[0], comparison.operands[1], each.operands[2], each.operands[1]}) {
      const Result<TensorIndex> made = operand_of(operand);
      if (!made) return made;
      operands.push_back(*made);
    }
    const TensorIndex condition =
        place_for(each.operands[0], {operands[0], operands[1]}, CUDNN_DATA_BOOLEAN);
    add({.mode = *opposite_of(comparison.opcode),
         .x = operands[0],
         .b = operands[1],
         .math = CUDNN_DATA_BOOLEAN},
        condition);
    const TensorIndex y = place_for(reg, {operands[2], condition}, CUDNN_DATA_FLOAT);
    add({.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = operands[2], .b = operands[3], .t = condition},
        y);
    return y;
  }

  Result<TensorIndex> sum(uint16_t reg, const std::vector<uint16_t>& order) {
    std::vector<TensorIndex> operands;
    for (const uint16_t each : order) {
      const Result<TensorIndex> operand = tensor_of(each);
      if (!operand) return operand;
      operands.push_back(*operand);
    }
    const CudnnTensor like = tensor(operands[0]);
    const TensorIndex first = graph_.add_virtual(like, like.dims, CUDNN_DATA_FLOAT);
    add({.mode = CUDNN_POINTWISE_ADD, .x = operands[0], .b = operands[1]}, first);
    const TensorIndex y = place_for(reg, {first}, CUDNN_DATA_FLOAT);
    add({.mode = CUDNN_POINTWISE_ADD, .x = first, .b = operands[2]}, y);
    return y;
  }

  Operations& graph_;
  const Program& program_;
  const ProgramPlace& place_;
  const ProgramShape shape_;
  std::vector<TensorIndex> tensors_;  // by register
  uint16_t last_ = 0;                 // whose value the output is
};

}  // namespace

Result<TensorIndex> add_program(Operations& graph, const Program& program,
                                const ProgramPlace& place) {
  return ProgramTranslation(graph, program, place).run();
}

std::string why_bits_may_differ(const Program& program) {
  const ProgramShape shape(program);
  for (const Program::Result& result : program.results())
    if (size_of(result.dtype) == 1) return "cuDNN does not document how it rounds to 8 bits";
  for (const Instruction& each : program.code()) {
    if (each.type != RegisterType::kF32) continue;
    switch (each.opcode) {
      case Opcode::kInput:
      case Opcode::kConstant:
      case Opcode::kCast:
      case Opcode::kRound:
      case Opcode::kMul:
      case Opcode::kNeg:
      case Opcode::kAbs:
      case Opcode::kMin:
      case Opcode::kMax:
        break;
      case Opcode::kAdd:
      case Opcode::kSub:
        for (size_t i = 0; i < 2; ++i)
          if (shape.at(each.operands[i]).opcode == Opcode::kMul)
            return "cuDNN may round a product and a sum once, where we round twice";
        break;
      default:
        return fmt::format("cuDNN may compute \"{}\" with other last bits", to_string(each.opcode));
    }
  }
  return {};
}

}  // namespace anneal::cuda
