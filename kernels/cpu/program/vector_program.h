// VectorProgram: a Program as steps on two registers, A and B, applied to a few vectors at a time.
// Most epilogues and many pointwise layers are such: one value passes through a sequence of
// operations. An operation may take a constant, an element of another tensor or a result computed
// from the value itself. A never leaves the processor's registers between the first load and the
// store, where each instruction of a tape reads and writes its tile.
//
// Every step computes in f32 what evaluate() does. Integers are kept in f32 lanes where every value
// is exact: elements of 8 and 16 bits, saturated ones, and sums of those with small constants.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "anneal/graph/program/program.h"

namespace anneal::cpu {

enum class VectorOp : uint8_t {
  kLoad,  // elements of a port, as f32
  kCopy,  // B = A
  kAdd,
  kSub,
  kSubFrom,  // operand - register
  kMul,
  kDiv,
  kDivInto,  // operand / register
  kMin,
  kMax,
  kNeg,
  kAbs,
  kSqrt,
  kFloor,
  kCeil,
  kRoundEven,
  kTrunc,
  kClamp,  // to [constant, high]; NaN gives 0
  kRoundBf16,
  kRoundF16,
  kExp,
  kErf,
  kTanh,
  kSigmoid,
  kApproximateSigmoid,  // program/bf16_approximations.h
  kApproximateOnePlusErf,
  kApproximateOnePlusTanh,
};

// The right operand of a binary step.
enum class VectorOperand : uint8_t { kOther, kConstant, kPort };

// `to_b`: the step writes B, else A; kOther is the other one. Only one step of A uses the value in
// B.
struct VectorStep {
  VectorOp op = VectorOp::kLoad;
  bool to_b = false;
  VectorOperand operand = VectorOperand::kOther;
  float constant = 0, high = 0;
  uint16_t port = 0;
  DataType storage = DataType::kF32;  // kLoad; kPort is of f32
};

// One result of a program, which is A in the end. Immutable. Ports are the program's inputs.
class VectorProgram {
 public:
  static constexpr size_t kMostSteps = 40;
  // One program for each result; empty for programs of another form. A value that several results
  // share is computed for each, and is therefore no expensive function.
  static std::vector<VectorProgram> compile(const Program& program,
                                            std::span<const DataType> inputs);

  std::span<const VectorStep> steps() const { return steps_; }
  DataType result() const { return result_; }
  // The conversion of a result of 8 bits while it is stored: limited to [low, high], rounded to the
  // nearest whole number, ties to even, and `zero` added. NaN becomes 0. Without it, A already
  // holds elements.
  struct Quantize {
    float low = 0, high = 0;
    int32_t zero = 0;
  };
  const std::optional<Quantize>& quantize() const { return quantize_; }

 private:
  std::vector<VectorStep> steps_;
  DataType result_ = DataType::kF32;
  std::optional<Quantize> quantize_;
};

}  // namespace anneal::cpu
