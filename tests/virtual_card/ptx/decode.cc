#include "anneal/tests/virtual_card/ptx/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "anneal/tests/virtual_card/ptx/access.h"
#include "anneal/tests/virtual_card/ptx/entries.h"

namespace anneal::ptx {
namespace {

constexpr size_t kFileBytes[] = {0, 2 * kLanes, 4 * kLanes, 8 * kLanes};  // by RegisterKind

struct KnownEntry {
  const Entry* entry = nullptr;
  bool is_lanewise = false;
};
const std::multimap<std::string_view, KnownEntry>& entries() {
  static const auto all = [] {
    std::multimap<std::string_view, KnownEntry> made;
    for (const auto family :
         {integer_entries(), float_entries(), compare_entries(), convert_entries(), move_entries()})
      for (const Entry& entry : family) made.emplace(entry.opcode, KnownEntry{&entry, true});
    for (const auto family :
         {carry_entries(), matrix_entries(), mbarrier_entries(), warp_entries()})
      for (const Entry& entry : family) made.emplace(entry.opcode, KnownEntry{&entry, false});
    return made;
  }();
  return all;
}

const std::map<std::string_view, Special>& specials() {
  static const std::map<std::string_view, Special> kNames = {
      {"%tid.x", Special::kTidX},       {"%tid.y", Special::kTidY},
      {"%tid.z", Special::kTidZ},       {"%ntid.x", Special::kNtidX},
      {"%ntid.y", Special::kNtidY},     {"%ntid.z", Special::kNtidZ},
      {"%ctaid.x", Special::kCtaidX},   {"%ctaid.y", Special::kCtaidY},
      {"%ctaid.z", Special::kCtaidZ},   {"%nctaid.x", Special::kNctaidX},
      {"%nctaid.y", Special::kNctaidY}, {"%nctaid.z", Special::kNctaidZ},
      {"%laneid", Special::kLaneid},    {"%warpid", Special::kWarpid}};
  return kNames;
}

// "s8" of an element of ld and st.
struct ElementType {
  uint8_t bytes = 0;
  bool is_signed = false;
};
ElementType element_type(const std::string& word) {
  if (word.size() < 2 || std::string_view("bsuf").find(word[0]) == std::string_view::npos)
    return {};
  const std::string_view bits = std::string_view(word).substr(1);
  const uint8_t bytes = bits == "8"    ? 1
                        : bits == "16" ? 2
                        : bits == "32" ? 4
                        : bits == "64" ? 8
                                       : 0;
  return {bytes, word[0] == 's'};
}

// One element of a parameter for all lanes. parameters: {bytes, register bytes, is signed}
void load_parameter(Warp& warp, const Instruction& instruction) {
  const uint32_t bytes = instruction.parameters[0], width = instruction.parameters[1];
  const std::byte* const from = warp.block().parameters + instruction.offset;
  std::byte value[8] = {};
  std::memcpy(value, from, bytes);
  if (instruction.parameters[2] != 0 && (from[bytes - 1] & std::byte{0x80}) != std::byte{0})
    std::memset(value + bytes, 0xff, sizeof(value) - bytes);
  auto* const to = warp.registers<std::byte>(instruction.at[0]);
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1)
    std::memcpy(to + static_cast<uint32_t>(std::countr_zero(left)) * width, value, width);
}

void jump(Warp& warp, const Instruction& instruction) { warp.branch(instruction.target); }

class Decoder {
 public:
  Decoder(const TextModule& module, const TextFunction& text,
          const std::map<std::string, uint64_t>& addresses)
      : module_(module), text_(text), variables_(addresses) {
    made_.name = text.name;
    made_.architecture = module.architecture;
    made_.max_threads = text.max_threads;
    made_.predicates = text.registers[0];
    made_.predicate_names = text.names[0];
    size_t at = 0;
    for (size_t kind = 1; kind < 4; ++kind) {
      begins_[kind] = at;
      for (const std::string& name : text.names[kind]) {
        made_.register_names.resize(at / kRegisterUnit);
        made_.register_names.push_back(name);
        at += kFileBytes[kind];
      }
    }
    made_.register_bytes = at;
    place_shared();
    place_local();
    for (const Variable& parameter : text.parameters) {
      made_.parameter_offsets.push_back(parameter.offset);
      made_.parameter_sizes.push_back(parameter.bytes);
      made_.parameter_alignments.push_back(parameter.alignment);
      made_.parameter_bytes = parameter.offset + parameter.bytes;
    }
  }

  Function decode() {
    made_.begins_block.assign(text_.statements.size() + 1, 0);
    for (const Label& label : text_.labels) {
      labels_[label.name] = label.statement;
      made_.begins_block[label.statement] = 1;
    }
    for (const Statement& statement : text_.statements) {
      statement_ = &statement;
      Instruction instruction;
      instruction.line = statement.line;
      instruction.text_line = statement.text_line;
      if (statement.has_guard) {
        instruction.guard = statement.guard;
        instruction.is_guard_negated = statement.is_guard_negated;
      }
      fill(instruction);
      made_.instructions.push_back(instruction);
      made_.opcodes.push_back(statement.opcode());
    }
    const bool ends =
        !text_.statements.empty() && !text_.statements.back().has_guard &&
        (text_.statements.back().words[0] == "ret" || text_.statements.back().words[0] == "bra");
    if (!ends) throw Refused(fmt::format("{} ends without ret or bra", text_.name));
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Refused(fmt::format("{}, line {} (PTX line {}): {}: {}", text_.name, statement_->line,
                              statement_->text_line, statement_->opcode(), why));
  }

  void place_local() {
    size_t at = 0;
    for (const Variable& variable : text_.local) {
      at = (at + variable.alignment - 1) / variable.alignment * variable.alignment;
      variables_[variable.name] = at;
      at += variable.bytes;
    }
    made_.local_bytes = (at + 15) / 16 * 16;
  }
  // Static variables one after the other, then the dynamic one.
  void place_shared() {
    size_t at = 0, alignment = 16;
    const auto place = [&](const Variable& variable) {
      if (variable.is_extern) {
        alignment = std::max(alignment, variable.alignment);
        return;
      }
      at = (at + variable.alignment - 1) / variable.alignment * variable.alignment;
      variables_[variable.name] = at;
      at += variable.bytes;
    };
    for (const Variable& variable : text_.shared) place(variable);
    for (const Variable& variable : module_.shared)
      if (is_used(variable.name)) place(variable);
    made_.static_shared_bytes = at;
    for (const Variable& variable : module_.shared)
      if (variable.is_extern)
        variables_[variable.name] = (at + alignment - 1) / alignment * alignment;
  }
  bool is_used(const std::string& name) const {
    return std::ranges::any_of(text_.statements, [&](const Statement& statement) {
      return std::ranges::any_of(statement.operands, [&](const TextOperand& operand) {
        return operand.name == name || std::ranges::any_of(operand.parts, [&](const auto& part) {
                 return part.name == name;
               });
      });
    });
  }

  void fill(Instruction& instruction) {
    const std::vector<std::string>& words = statement_->words;
    if (words[0] == "bra") return branch(instruction);
    if (words[0] == "ld" || words[0] == "st") return memory(instruction);
    if (words[0] == "atom" || words[0] == "red") return atomic(instruction);
    const std::string opcode = plain_opcode();
    const auto [first, last] = entries().equal_range(opcode);
    if (first == last) refuse("the interpreter does not have this instruction");
    std::string why;
    for (auto entry = first; entry != last; ++entry) {
      Instruction tried = instruction;
      why = operands(*entry->second.entry, tried);
      if (!why.empty()) continue;
      instruction = tried;
      instruction.run = entry->second.entry->run;
      instruction.is_lanewise = entry->second.is_lanewise;
      return;
    }
    refuse(why);
  }

  // Without words that make no difference here: the order and the scope of accesses of mbarriers.
  std::string plain_opcode() const {
    Statement plain;
    const bool has_order = statement_->words[0] == "mbarrier";
    static constexpr std::string_view kOrders[] = {"acquire", "release", "relaxed", "cta",
                                                   "cluster"};
    for (const std::string& word : statement_->words) {
      if (has_order && std::ranges::find(kOrders, word) != std::end(kOrders)) continue;
      plain.words.push_back(word == "shared::cta" ? "shared" : word);
    }
    return plain.opcode();
  }

  void branch(Instruction& instruction) {
    const auto found = labels_.find(statement_->operands.at(0).name);
    if (found == labels_.end()) refuse("there is no such label");
    instruction.run = jump;
    instruction.target = static_cast<uint32_t>(found->second);
  }

  // "ld.global.nc.v4.f32 {...}, [%rd1+16]"
  void memory(Instruction& instruction) {
    const bool is_store = statement_->words[0] == "st";
    std::string space;
    uint8_t elements = 1;
    ElementType type;
    bool is_read_only = false;
    for (size_t i = 1; i < statement_->words.size(); ++i) {
      const std::string& word = statement_->words[i];
      if (word == "global" || word == "shared" || word == "local" || word == "param") {
        space = word;
      } else if (word == "shared::cta") {
        space = "shared";
      } else if (word == "v2" || word == "v4" || word == "v8") {
        elements = static_cast<uint8_t>(word[1] - '0');
      } else if (const ElementType found = element_type(word); found.bytes != 0) {
        type = found;
      } else if (word == "nc") {
        is_read_only = true;
      } else if (word != "volatile" && word != "relaxed" && word != "gpu") {
        refuse(fmt::format("\"{}\" is not implemented", word));
      }
    }
    const TextOperand& address = statement_->operands.at(is_store ? 0 : 1);
    const TextOperand& data = statement_->operands.at(is_store ? 1 : 0);
    if (address.kind != TextOperand::kAddress || type.bytes == 0 || space.empty())
      refuse("an address, a space or a type is missing");
    std::vector<TextOperand> parts =
        data.kind == TextOperand::kVector ? data.parts : std::vector<TextOperand>{data};
    if (parts.size() != elements) refuse("another number of elements");
    const bool is_of_call =
        space == "param" &&
        std::ranges::find(text_.local, address.parts[0].name, &Variable::name) != text_.local.end();
    if (space == "param" && !is_of_call) return parameter(instruction, address, parts[0], type);

    const Space where = space == "shared"                ? Space::kShared
                        : space == "local" || is_of_call ? Space::kLocal
                                                         : Space::kGlobal;
    if (is_read_only && (where != Space::kGlobal || is_store))
      refuse(".nc is for loads of global memory");
    const bool is_wide = address_place(instruction, address, where != Space::kGlobal);
    uint8_t width = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].kind == TextOperand::kRegister) {
        if (parts[i].register_kind == RegisterKind::kPredicate) refuse("a predicate in memory");
        width =
            static_cast<uint8_t>(kFileBytes[static_cast<size_t>(parts[i].register_kind)] / kLanes);
        instruction.at[1 + i] = place_of(parts[i]);
      } else {
        if (!is_store) refuse("a result that is no register");
        instruction.at[1 + i] =
            type.bytes == 8
                ? constant<uint64_t>(bits_of(parts[i], 8))
                : constant<uint32_t>(static_cast<uint32_t>(bits_of(parts[i], type.bytes)));
        width = type.bytes == 8 ? 8 : 4;
      }
    }
    if (width < type.bytes) refuse("a register that is narrower than the element");
    instruction.parameters = {
        elements, type.bytes, width,
        static_cast<uint8_t>((type.is_signed ? kIsSigned : 0) | (is_read_only ? kIsReadOnly : 0))};
    instruction.run = is_store ? store(where, is_wide) : load(where, is_wide);
  }

  // Whether it has 64 bits.
  bool address_place(Instruction& instruction, const TextOperand& address, bool may_be_variable) {
    const TextOperand& base = address.parts.at(0);
    instruction.offset = static_cast<int64_t>(address.bits);
    if (base.kind == TextOperand::kRegister) {
      const bool is_wide = base.register_kind == RegisterKind::kB64;
      if (!is_wide && !may_be_variable) refuse("an address of 32 bits");
      instruction.at[0] = place_of(base);
      return is_wide;
    }
    if (base.kind != TextOperand::kVariable || !may_be_variable)
      refuse("an address that is neither a register nor a variable");
    instruction.at[0] = constant<uint32_t>(static_cast<uint32_t>(variable(base)));
    return false;
  }

  // "atom.relaxed.gpu.global.add.u32 %r1, [%rd1], %r2", "red..." without a result
  void atomic(Instruction& instruction) {
    static constexpr std::string_view kOrders[] = {"relaxed", "acquire", "release", "acq_rel",
                                                   "cta",     "gpu",     "sys"};
    const bool has_result = statement_->words[0] == "atom";
    std::string space;
    int operation = -1;
    AtomicType type;
    for (size_t i = 1; i < statement_->words.size(); ++i) {
      const std::string& word = statement_->words[i];
      if (word == "global" || word == "shared" || word == "shared::cta")
        space = word.substr(0, 6);
      else if (const int found = atomic_operation(word); found >= 0)
        operation = found;
      else if (const AtomicType named = atomic_type(word); named.bytes != 0)
        type = named;
      else if (std::ranges::find(kOrders, word) == std::end(kOrders))
        refuse(fmt::format("\"{}\" is not implemented", word));
    }
    const size_t first = has_result ? 1 : 0;
    const bool is_compare = operation >= 0 && operation == atomic_operation("cas");
    if (statement_->operands.size() != first + (is_compare ? 3 : 2))
      refuse("another number of operands");
    const TextOperand& address = statement_->operands[first];
    if (address.kind != TextOperand::kAddress || space.empty() || operation < 0 || type.bytes == 0)
      refuse("an address, a space, an operation or a type is missing");
    if (!is_atomic_allowed(operation, type)) refuse("there is no such operation of this type");
    const bool is_shared = space == "shared";
    const bool is_wide = address_place(instruction, address, is_shared);
    const RegisterKind kind = type.bytes == 8 ? RegisterKind::kB64 : RegisterKind::kB32;
    const bool has_place = has_result && statement_->operands[0].name != "_";
    if (has_place) instruction.at[1] = operand_place(statement_->operands[0], kind, true);
    for (size_t i = first + 1; i < statement_->operands.size(); ++i)
      instruction.at[1 + i - first] = operand_place(statement_->operands[i], kind, false);
    instruction.parameters = {static_cast<uint8_t>(operation), type.number,
                              static_cast<uint8_t>((is_shared ? 1 : 0) | (is_wide ? 2 : 0)),
                              uint8_t{has_place}};
    instruction.run = update_memory;
  }

  Place operand_place(const TextOperand& operand, RegisterKind kind, bool is_result) {
    if (operand.kind != TextOperand::kRegister && !is_result) return value_place(operand, kind);
    if (operand.kind != TextOperand::kRegister) refuse("a result that is no register");
    if (operand.register_kind != kind) refuse("a register of another width");
    return place_of(operand);
  }

  void parameter(Instruction& instruction, const TextOperand& address, const TextOperand& result,
                 ElementType type) {
    const auto found =
        std::ranges::find(text_.parameters, address.parts.at(0).name, &Variable::name);
    if (found == text_.parameters.end()) refuse("there is no such parameter");
    if (address.bits + type.bytes > found->bytes) refuse("beyond the parameter");
    instruction.run = load_parameter;
    instruction.offset = static_cast<int64_t>(found->offset + address.bits);
    instruction.at[0] = place_of(result);
    instruction.parameters = {
        type.bytes,
        static_cast<uint8_t>(kFileBytes[static_cast<size_t>(result.register_kind)] / kLanes),
        uint8_t{type.is_signed}, 0};
  }

  // Places of the operands as the signature says; why not, if they do not fit.
  std::string operands(const Entry& entry, Instruction& instruction) {
    std::vector<const TextOperand*> flat;
    std::vector<char> letters;
    for (const TextOperand& operand : statement_->operands) {
      if (operand.kind == TextOperand::kVector || operand.kind == TextOperand::kPair) {
        for (const TextOperand& part : operand.parts) flat.push_back(&part);
      } else {
        flat.push_back(&operand);
      }
    }
    size_t results = 0;
    size_t times = 1;
    for (const char letter : entry.signature) {
      if (letter == '=') {
        results = letters.size();
      } else if (letter >= '0' && letter <= '9') {
        times = static_cast<size_t>(letter - '0');
      } else {
        letters.insert(letters.end(), times, letter);
        times = 1;
      }
    }
    if (flat.size() != letters.size()) return "another number of operands";
    instruction.results = static_cast<uint8_t>(results);
    instruction.operands = static_cast<uint8_t>(letters.size());
    for (size_t i = 0; i < letters.size(); ++i)
      if (letters[i] == 'p' || letters[i] == 'c')
        instruction.predicates |= static_cast<uint16_t>(1u << i);
    size_t parameter = 0;
    for (size_t i = 0; i < flat.size(); ++i) {
      const TextOperand& operand = *flat[i];
      const auto kind = operand.register_kind;
      const bool is_register = operand.kind == TextOperand::kRegister;
      switch (letters[i]) {
        case 'p':
        case 'c':
          if (is_register && kind == RegisterKind::kPredicate) {
            instruction.at[i] = operand.index;
          } else if (letters[i] == 'c' && operand.kind == TextOperand::kInteger) {
            instruction.at[i] = constant_predicate();
          } else {
            return "an operand that is no predicate";
          }
          if (letters[i] == 'c')
            instruction.parameters.at(parameter++) =
                static_cast<uint8_t>(operand.is_negated != (!is_register && operand.bits != 0));
          else if (operand.is_negated)
            return "a negated predicate";
          break;
        case 'x':
          if (!is_register || kind == RegisterKind::kPredicate) return "an operand of another type";
          instruction.parameters.at(parameter++) =
              static_cast<uint8_t>(kFileBytes[static_cast<size_t>(kind)] / kLanes);
          instruction.at[i] = place_of(operand);
          break;
        case 'a':
        case 's':
        case 'S': {
          if (operand.kind != TextOperand::kAddress ||
              operand.parts.at(0).kind != TextOperand::kRegister ||
              operand.parts[0].register_kind != RegisterKind::kB32)
            return "an address that is no register of 32 bits";
          if (letters[i] == 'a')
            instruction.offset = static_cast<int64_t>(operand.bits);
          else if (operand.bits != 0)
            return "an address with an offset";
          if (letters[i] != 'a') instruction.parameters.at(parameter++) = letters[i] == 'S' ? 1 : 0;
          instruction.at[i] = place_of(operand.parts[0]);
          break;
        }
        default: {
          const RegisterKind wanted = letters[i] == 'h'   ? RegisterKind::kB16
                                      : letters[i] == 'w' ? RegisterKind::kB32
                                                          : RegisterKind::kB64;
          const TextOperand& value =
              operand.kind == TextOperand::kAddress ? operand.parts.at(0) : operand;
          if (operand.kind == TextOperand::kAddress && operand.bits != 0)
            return "an address with an offset";
          if (value.kind == TextOperand::kRegister) {
            if (value.register_kind != wanted) return "a register of another width";
            instruction.at[i] = place_of(value);
          } else if (i < results && value.name == "_") {
            instruction.at[i] = sink();
          } else if (i < results) {
            return "a result that is no register";
          } else {
            instruction.at[i] = value_place(value, wanted);
          }
        }
      }
    }
    return {};
  }

  Place place_of(const TextOperand& operand) const {
    const auto kind = static_cast<size_t>(operand.register_kind);
    return static_cast<Place>(begins_[kind] + operand.index * kFileBytes[kind]);
  }

  uint64_t variable(const TextOperand& operand) const {
    const auto found = variables_.find(operand.name);
    if (found == variables_.end()) refuse(fmt::format("there is no variable \"{}\"", operand.name));
    return found->second;
  }

  uint64_t bits_of(const TextOperand& operand, size_t bytes) const {
    switch (operand.kind) {
      case TextOperand::kInteger:
        return operand.bits;
      case TextOperand::kF32:
        if (bytes != 4) refuse("a constant of f32");
        return operand.bits;
      case TextOperand::kF64:
        if (bytes != 8) refuse("a constant of f64");
        return operand.bits;
      case TextOperand::kVariable:
        return variable(operand);
      default:
        refuse("an operand that is neither register nor constant");
    }
  }

  Place value_place(const TextOperand& operand, RegisterKind wanted) {
    if (operand.kind == TextOperand::kSpecial) {
      const auto found = specials().find(operand.name);
      if (found == specials().end() || wanted != RegisterKind::kB32)
        refuse(fmt::format("{} is not implemented", operand.name));
      const auto place = static_cast<Place>(made_.register_bytes);
      for (const auto& [special, known] : made_.specials)
        if (special == found->second) return known;
      made_.register_bytes += kFileBytes[static_cast<size_t>(RegisterKind::kB32)];
      made_.specials.emplace_back(found->second, place);
      return place;
    }
    switch (wanted) {
      case RegisterKind::kB16:
        return constant<uint16_t>(static_cast<uint16_t>(bits_of(operand, 2)));
      case RegisterKind::kB32:
        return constant<uint32_t>(static_cast<uint32_t>(bits_of(operand, 4)));
      default:
        return constant<uint64_t>(bits_of(operand, 8));
    }
  }

  template <class T>
  Place constant(T value) {
    const auto [found, is_new] = constants_.try_emplace({sizeof(T), value}, 0);
    if (is_new) {
      const size_t at = (made_.constants.size() + 63) / 64 * 64;
      made_.constants.resize(at + sizeof(T) * kLanes);
      for (size_t lane = 0; lane < kLanes; ++lane)
        std::memcpy(made_.constants.data() + at + lane * sizeof(T), &value, sizeof(T));
      found->second = static_cast<Place>(at) | kConstant;
    }
    return found->second;
  }

  // For a result that is not wanted.
  Place sink() {
    if (!sink_) {
      sink_ = static_cast<Place>(made_.register_bytes);
      made_.register_bytes += kFileBytes[static_cast<size_t>(RegisterKind::kB64)];
    }
    return *sink_;
  }

  // A predicate that is always false; parameters negate it.
  Place constant_predicate() {
    if (!false_) {
      false_ = true;
      ++made_.predicates;
    }
    return text_.registers[0];
  }

  const TextModule& module_;
  const TextFunction& text_;
  const Statement* statement_ = nullptr;
  Function made_;
  size_t begins_[4] = {};
  std::map<std::string, size_t> labels_;
  std::map<std::string, uint64_t> variables_;  // addresses, of shared memory in the block's
  std::map<std::pair<size_t, uint64_t>, Place> constants_;
  bool false_ = false;
  std::optional<Place> sink_;
};

}  // namespace

Function decode(const TextModule& module, const TextFunction& function,
                const std::map<std::string, uint64_t>& addresses) {
  return Decoder(module, function, addresses).decode();
}

}  // namespace anneal::ptx
