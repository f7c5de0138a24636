// Program -> Tape: every register gets a slot from its definition to its last use.
#include "anneal/kernels/cpu/tape.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

std::optional<Tape> Tape::compile(const Program& program, std::string& why_not,
                                  std::optional<DataType> first) {
  Tape tape;
  tape.input_types_.assign(program.inputs().begin(), program.inputs().end());
  if (first && !tape.input_types_.empty()) tape.input_types_[0] = *first;
  const auto code = program.code();
  const size_t end = code.size();
  std::vector<size_t> last_use(end, 0);
  for (size_t at = 0; at < end; ++at)
    for (int i = 0; i < operand_count(code[at].opcode); ++i) last_use[code[at].operands[i]] = at;
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
    TapeStep step;
    step.instruction = instruction;
    if (instruction.opcode == Opcode::kInput) {
      step.port = static_cast<uint16_t>(instruction.immediate);
      step.storage = tape.input_types_[instruction.immediate];
    } else if (instruction.opcode == Opcode::kIndex) {
      step.port = static_cast<uint16_t>(program.inputs().size() + tape.index_axes_.size());
      tape.index_axes_.push_back(static_cast<int>(instruction.immediate));
    }
    const int operands = operand_count(instruction.opcode);
    for (int i = 0; i < operands; ++i) {
      step.operands[i] = where[instruction.operands[i]];
      step.operand_types[i] = code[instruction.operands[i]].type;
    }
    // Never in place: an operand that is one vector long, repeated, would be overwritten.
    step.slot = where[at] = slots.take(is_wide(instruction.type));
    for (int i = 0; i < operands; ++i) {
      size_t& last = last_use[instruction.operands[i]];
      if (last != at || step.operands[i] < 0) continue;
      slots.give(step.operands[i], is_wide(step.operand_types[i]));
      last = end;  // given back once, also if it is an operand twice
    }
    tape.steps_.push_back(step);
  }
  for (const auto& result : program.results())
    tape.results_.push_back({where[result.reg], code[result.reg].type, result.dtype});

  if (slots.count() > kMaxTapeSlots) {
    why_not = "more than 64 values of the program are alive at a time";
    return std::nullopt;
  }
  if (tape.input_types_.size() + tape.index_axes_.size() > kMaxTapePorts ||
      tape.results_.size() > kMaxTapePorts) {
    why_not = "more than 64 inputs or results of a program";
    return std::nullopt;
  }
  tape.scratch_bytes_ = slots.bytes();
  tape.slot_offsets_ = std::move(slots).offsets();
  return tape;
}

}  // namespace anneal::cpu
