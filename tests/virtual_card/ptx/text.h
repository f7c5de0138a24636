// The text of a PTX module (PTX ISA 9, "Syntax"), parsed into statements. Names are resolved, but
// instructions are not interpreted: decode.h does that.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace anneal::ptx {

// The text is malformed, or has something that is not implemented. The message names the line.
class Refused : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class RegisterKind : uint8_t { kPredicate, kB16, kB32, kB64 };

struct TextOperand {
  enum Kind : uint8_t {
    kRegister,  // `index`
    kInteger,   // `bits`
    kF32,       // `bits`
    kF64,       // `bits`
    kSpecial,   // `name`: "%tid.x"
    kVariable,  // `name`: a parameter, or a variable in shared or global memory
    kLabel,     // `name`
    kVector,    // `parts`
    kAddress,   // `parts[0]`, plus `bits` bytes
    kPair,      // `parts`: a result and its predicate, "%r1|%p1"
  };
  Kind kind = kInteger;
  RegisterKind register_kind = RegisterKind::kB32;
  uint32_t index = 0;  // of the register, among those of its kind
  uint64_t bits = 0;
  bool is_negated = false;  // "!%p1"
  std::string name = {};
  std::vector<TextOperand> parts = {};
};

struct Statement {
  std::vector<std::string> words;  // "cp.async.ca.shared.global" at its dots
  std::vector<TextOperand> operands;
  bool has_guard = false, is_guard_negated = false;
  uint32_t guard = 0;      // a predicate register
  uint32_t line = 0;       // of the program that was compiled, by .loc; 0: unknown
  uint32_t text_line = 0;  // of the PTX

  std::string opcode() const;
};

struct Variable {
  std::string name;
  size_t bytes = 0, alignment = 1;
  size_t offset = 0;  // of parameters, in the buffer of all parameters
  bool is_extern = false;
  std::vector<std::byte> values = {};  // of global memory, at first; else zeros
};

struct Label {
  std::string name;
  size_t statement = 0;  // the one behind it
};

struct TextFunction {
  std::string name;
  std::vector<Variable> parameters;
  std::vector<Variable> shared, local;  // declared in the body
  std::vector<Statement> statements;
  std::vector<Label> labels;
  uint32_t registers[4] = {};  // by RegisterKind
  std::vector<std::string> names[4];
  uint32_t max_threads = 0;  // .maxntid; 0: none
};

struct TextModule {
  int architecture = 0;  // 90 of ".target sm_90"
  std::vector<Variable> shared, global;
  std::vector<TextFunction> functions;
};

// Fails with Refused.
TextModule parse(std::string_view text);

}  // namespace anneal::ptx
