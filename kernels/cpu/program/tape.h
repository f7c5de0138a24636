// Tape: a Program compiled for tiles of up to 1024 elements, each instruction one SIMD loop over
// tiles that stay in the first-level cache. Pointwise kernels run it. GEMM, convolution and other
// kernels apply it to accumulators that are in the cache.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/isa.h"
#include "anneal/core/result.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/cpu/program/bf16_approximations.h"
#include "anneal/kernels/cpu/program/vector_program.h"

namespace anneal::cpu {

inline constexpr int kTileLanes = 1024;
inline constexpr int kMaxTapeSlots = 64;
inline constexpr int kMaxTapePorts = 64;

// One instruction: input, index and constants included. Operands are slots, or constants written
// as -1 - number.
struct TapeStep {
  Instruction instruction;
  std::array<RegisterType, 3> operand_types{};
  std::array<int16_t, 3> operands{};
  uint8_t operand_count = 0;
  // Two instructions in one loop: `first` of operands 0 and 1 is an operand of the instruction, the
  // right one if first_is_right; operand 2 is the other one.
  bool is_pair = false, first_is_right = false;
  Opcode first = Opcode::kAdd;
  Bf16Approximation coarse =
      Bf16Approximation::kNone;       // else of operand 0, instead of the instruction
  int16_t slot = 0;                   // of the result
  uint16_t port = 0;                  // kInput, kIndex: where it reads
  DataType storage = DataType::kF32;  // kInput
};

struct TapeResult {
  int16_t operand = 0;
  RegisterType type = RegisterType::kF32;
  DataType storage = DataType::kF32;
};

// A constant, repeated to the length of the widest vector. A bool is a lane of 0 or -1 (i32), here
// and in slots.
struct alignas(64) TapeConstant {
  std::array<std::byte, 128> bytes;
};

// The instructions that can form pairs: f32, with two operands, in this order in tables.
inline constexpr std::array kPairOpcodes = {Opcode::kAdd, Opcode::kSub, Opcode::kMul, Opcode::kMin,
                                            Opcode::kMax};

// Immutable. Ports are the inputs of a tape: the program's inputs, then one per axis whose index it
// uses.
class Tape {
 public:
  // Refuses programs that need too many values at a time. first: how input 0 is stored, if not as
  // the program has it (f16 for f32, say); its register type is the same.
  static Result<Tape> compile(const Program& program, std::optional<DataType> first = std::nullopt);

  std::span<const TapeStep> steps() const { return steps_; }
  std::span<const TapeResult> results() const { return results_; }
  std::span<const TapeConstant> constants() const { return constants_; }
  int input_count() const { return static_cast<int>(input_types_.size()); }
  std::span<const DataType> input_types() const { return input_types_; }
  std::span<const int> index_axes() const { return index_axes_; }
  std::span<const size_t> slot_offsets() const { return slot_offsets_; }
  size_t scratch_bytes() const { return scratch_bytes_; }  // per thread; a multiple of 64
  std::span<const VectorProgram> vector_programs() const {
    return vector_programs_;
  }  // the same, if it can be that
  // If there is one, the result is a byte of it: the one that the steps give the number of.
  const std::array<uint8_t, 256>* table() const { return table_ ? &*table_ : nullptr; }

 private:
  std::vector<TapeStep> steps_;
  std::vector<TapeResult> results_;
  std::vector<TapeConstant> constants_;
  std::vector<DataType> input_types_;
  std::vector<int> index_axes_;
  std::vector<size_t> slot_offsets_;
  size_t scratch_bytes_ = 0;
  std::vector<VectorProgram> vector_programs_;
  std::optional<std::array<uint8_t, 256>> table_;
};

// A rows x columns block of one operand. Strides count elements. For an index port data is null and
// `first` is the index of the block's first element.
// No default values: tables of ports are made for every block.
struct TapePort {
  std::byte* data;
  int64_t first;
  int64_t row_stride, column_stride;
};

// Rows of a block with `columns` columns (<= kTileLanes) that fit in a tile; at least 1.
int64_t tile_rows(int64_t columns);

// Runs the tape over one block of any size. sinks[i] is where result i goes; one that is the same
// memory as an input port, element for element, is allowed.
using RunTape = void (*)(const Tape& tape, int64_t rows, int64_t columns,
                         std::span<const TapePort> ports, std::span<const TapePort> sinks,
                         std::byte* scratch);
RunTape run_tape(Isa isa);

// Elements of any storage as the lanes of their register type, row after row, `pitch` lanes apart.
using LoadBlock = void (*)(DataType storage, const TapePort& port, std::byte* lanes, int64_t pitch,
                           int64_t rows, int64_t columns);
LoadBlock load_block(Isa isa);

}  // namespace anneal::cpu
