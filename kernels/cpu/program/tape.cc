// Program -> Tape: every register gets a slot from its definition to its last use.
#include "anneal/kernels/cpu/program/tape.h"

#include <algorithm>
#include <cstring>

#include "anneal/kernels/cpu/program/byte_tail.h"

namespace anneal::cpu {
namespace {

bool is_wide(RegisterType type) {
  return type == RegisterType::kF64 || type == RegisterType::kI64 || type == RegisterType::kU64;
}

TapeConstant repeated(RegisterType type, uint64_t bits) {
  TapeConstant constant{};
  const size_t size = is_wide(type) ? 8 : 4;
  if (type == RegisterType::kBool) bits = (bits & 0xff) != 0 ? ~uint64_t{0} : 0;
  for (size_t at = 0; at < constant.bytes.size(); at += size)
    std::memcpy(constant.bytes.data() + at, &bits, size);
  return constant;
}

// Slots free for reuse, by width.
class Slots {
 public:
  int16_t take(bool wide) {
    auto& free = free_[wide];
    if (!free.empty()) {
      const int16_t slot = free.back();
      free.pop_back();
      return slot;
    }
    offsets_.push_back(bytes_);
    bytes_ += kTileLanes * (wide ? 8 : 4);
    return static_cast<int16_t>(offsets_.size() - 1);
  }
  void give(int16_t slot, bool wide) { free_[wide].push_back(slot); }
  size_t count() const { return offsets_.size(); }
  size_t bytes() const { return bytes_; }
  std::vector<size_t> offsets() && { return std::move(offsets_); }

 private:
  std::array<std::vector<int16_t>, 2> free_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

bool is_exact(const ApproximatedInstruction& coarse) {
  return coarse.function == Bf16Approximation::kNone;
}

bool is_pair_opcode(const Instruction& instruction) {
  return instruction.type == RegisterType::kF32 &&
         std::find(kPairOpcodes.begin(), kPairOpcodes.end(), instruction.opcode) !=
             kPairOpcodes.end();
}

// For each instruction, which of its operands is computed in the same loop; -1: none. That operand
// is used nowhere else, and no pair itself.
std::vector<int> find_pairs(const Program& program,
                            std::span<const ApproximatedInstruction> coarse) {
  const auto code = program.code();
  const auto is_pairable = [&](size_t at) {
    return is_exact(coarse[at]) && is_pair_opcode(code[at]);
  };
  std::vector<int> uses(code.size(), 0), pairs(code.size(), -1);
  for (const Instruction& instruction : code)
    for (int i = 0; i < operand_count(instruction.opcode); ++i) ++uses[instruction.operands[i]];
  for (const auto& result : program.results()) uses[result.reg] += 2;
  for (size_t at = 0; at < code.size(); ++at) {
    if (!is_pairable(at)) continue;
    for (int i = 0; i < 2 && pairs[at] < 0; ++i) {
      const uint16_t operand = code[at].operands[i];
      if (uses[operand] == 1 && is_pairable(operand) && pairs[operand] < 0) pairs[at] = i;
    }
  }
  return pairs;
}

}  // namespace

Result<Tape> Tape::compile(const Program& program, std::optional<DataType> first) {
  if (const auto tail = cut_byte_tail(program)) {
    auto head = compile(tail->head, first);
    if (head) head->table_ = tail->table;
    return head;
  }
  Tape tape;
  tape.input_types_.assign(program.inputs().begin(), program.inputs().end());
  if (first && !tape.input_types_.empty()) tape.input_types_[0] = *first;
  const auto code = program.code();
  const size_t end = code.size();
  const std::vector<ApproximatedInstruction> coarse = find_approximations(program);
  const std::vector<int> pairs = find_pairs(program, coarse);
  std::vector<bool> is_within(end, false);  // the loop of another one
  std::vector<size_t> last_use(end, 0);
  // The registers that the loop of an instruction reads.
  const auto operands_of = [&](size_t at) {
    std::array<uint16_t, 3> regs = code[at].operands;
    if (!is_exact(coarse[at])) return std::array<uint16_t, 3>{coarse[at].argument};
    if (pairs[at] < 0) return regs;
    const uint16_t first = regs[pairs[at]], other = regs[1 - pairs[at]];
    return std::array<uint16_t, 3>{code[first].operands[0], code[first].operands[1], other};
  };
  const auto count_of = [&](size_t at) {
    if (!is_exact(coarse[at])) return 1;
    return pairs[at] < 0 ? operand_count(code[at].opcode) : 3;
  };
  for (size_t at = 0; at < end; ++at) {
    if (pairs[at] >= 0) is_within[code[at].operands[pairs[at]]] = true;
    if (!is_exact(coarse[at]))
      for (int i = 0; i < operand_count(code[at].opcode); ++i)
        if (code[at].operands[i] != coarse[at].argument) is_within[code[at].operands[i]] = true;
    for (int i = 0; i < count_of(at); ++i) last_use[operands_of(at)[i]] = at;
  }
  for (const auto& result : program.results()) last_use[result.reg] = end;

  Slots slots;
  std::vector<int16_t> where(end);
  for (size_t at = 0; at < end; ++at) {
    const Instruction& instruction = code[at];
    if (instruction.opcode == Opcode::kConstant) {
      where[at] = static_cast<int16_t>(-1 - static_cast<int>(tape.constants_.size()));
      tape.constants_.push_back(repeated(instruction.type, instruction.immediate));
      continue;
    }
    if (is_within[at]) continue;
    TapeStep step;
    step.instruction = instruction;
    step.coarse = coarse[at].function;
    step.operand_count = static_cast<uint8_t>(count_of(at));
    step.is_pair = pairs[at] >= 0;
    if (step.is_pair) {
      step.first = code[instruction.operands[pairs[at]]].opcode;
      step.first_is_right = pairs[at] == 1;
    }
    if (instruction.opcode == Opcode::kInput) {
      step.port = static_cast<uint16_t>(instruction.immediate);
      step.storage = tape.input_types_[instruction.immediate];
    } else if (instruction.opcode == Opcode::kIndex) {
      step.port = static_cast<uint16_t>(program.inputs().size() + tape.index_axes_.size());
      tape.index_axes_.push_back(static_cast<int>(instruction.immediate));
    }
    const auto regs = operands_of(at);
    for (int i = 0; i < step.operand_count; ++i) {
      step.operands[i] = where[regs[i]];
      step.operand_types[i] = code[regs[i]].type;
    }
    // Never in place: an operand that is one vector long, repeated, would be overwritten.
    step.slot = where[at] = slots.take(is_wide(instruction.type));
    for (int i = 0; i < step.operand_count; ++i) {
      size_t& last = last_use[regs[i]];
      if (last != at || step.operands[i] < 0) continue;
      slots.give(step.operands[i], is_wide(step.operand_types[i]));
      last = end;  // given back once, also if it is an operand twice
    }
    tape.steps_.push_back(step);
  }
  for (const auto& result : program.results())
    tape.results_.push_back({where[result.reg], code[result.reg].type, result.dtype});

  if (slots.count() > kMaxTapeSlots)
    return refuse("more than 64 values of the program are alive at a time");
  if (tape.input_types_.size() + tape.index_axes_.size() > kMaxTapePorts ||
      tape.results_.size() > kMaxTapePorts)
    return refuse("more than 64 inputs or results of a program");
  tape.vector_programs_ = VectorProgram::compile(program, tape.input_types_);
  tape.scratch_bytes_ = slots.bytes();
  tape.slot_offsets_ = std::move(slots).offsets();
  return tape;
}

}  // namespace anneal::cpu
