// run_vector_program(): threaded code. Each step of a vector program is a function that takes eight
// vectors of A in registers, changes them and jumps to the function of the next step; B is in
// memory.
#include "anneal/kernels/cpu/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "anneal/kernels/cpu/program/vector_program_run.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "anneal/core/float16.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/program/tape.h"
#if HWY_TARGET != HWY_SCALAR
// In this order, which formatting must not change:
#include "anneal/kernels/cpu/program/tape_math-inl.h"
//
#include "anneal/kernels/cpu/program/bf16_approximations-inl.h"
//
#include "anneal/kernels/cpu/program/vector_lanes-inl.h"
//
#include "anneal/kernels/cpu/program/vector_steps-inl.h"
//
#include "anneal/kernels/cpu/program/vector_joined-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace anneal::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

namespace {

// The function of each step, for groups of kColumns columns.
template <int kColumns>
class Binder {
 public:
  // access: to the port, if the step has one.
  static Step step(const VectorStep& step, Access access) {
    switch (step.op) {
      case VectorOp::kLoad:
        return load_of(step, access);
      case VectorOp::kCopy:
        return copy_to_b;
      case VectorOp::kAdd:
        return binary<Add>(step, access);
      case VectorOp::kSub:
        return binary<Sub>(step, access);
      case VectorOp::kSubFrom:
        return binary<SubFrom>(step, access);
      case VectorOp::kMul:
        return binary<Mul>(step, access);
      case VectorOp::kDiv:
        return binary<Div>(step, access);
      case VectorOp::kDivInto:
        return binary<DivInto>(step, access);
      case VectorOp::kMin:
        return is_number(step) ? binary<MinNumber>(step, access) : binary<Min>(step, access);
      case VectorOp::kMax:
        return is_number(step) ? binary<MaxNumber>(step, access) : binary<Max>(step, access);
      case VectorOp::kNeg:
        return unary<Neg>(step);
      case VectorOp::kAbs:
        return unary<Abs>(step);
      case VectorOp::kSqrt:
        return unary<Sqrt>(step);
      case VectorOp::kFloor:
        return unary<Floor>(step);
      case VectorOp::kCeil:
        return unary<Ceil>(step);
      case VectorOp::kRoundEven:
        return unary<RoundEven>(step);
      case VectorOp::kTrunc:
        return unary<Trunc>(step);
      case VectorOp::kClamp:
        return step.to_b ? clamp_b : clamp_a;
      case VectorOp::kRoundBf16:
        return unary<RoundBf16>(step);
      case VectorOp::kRoundF16:
        return unary<RoundF16>(step);
      case VectorOp::kExp:
        return function<Exp>(step);
      case VectorOp::kErf:
        return function<Erf>(step);
      case VectorOp::kTanh:
        return function<Tanh>(step);
      case VectorOp::kSigmoid:
        return function<Sigmoid>(step);
      case VectorOp::kApproximateSigmoid:
        return function<ApproximateSigmoid>(step);
      case VectorOp::kApproximateOnePlusErf:
        return function<ApproximateOnePlusErf>(step);
      case VectorOp::kApproximateOnePlusTanh:
        return function<ApproximateOnePlusTanh>(step);
    }
    return nullptr;
  }

  static Step quantize(DataType dtype) {
    return dtype == DataType::kU8 ? quantize_a<uint8_t, kColumns> : quantize_a<int8_t, kColumns>;
  }

  static Step store_rounded_bf16() {
    return computes_bf16(current_isa()) ? store_a<ConvertedToBf16, kColumns>
                                        : store_a<RoundedToBf16, kColumns>;
  }
  // The last of the joined steps stores a result of the vector program.
  static Step joined_with_store(const VectorProgram& chain, bool rounds,
                                const Joiner<kColumns>& joiner) {
    if (chain.quantize()) return joiner.quantize(chain.result());
    if (chain.result() == DataType::kF32) return joiner.template store<AsF32>();
    if (!rounds) return nullptr;
    return computes_bf16(current_isa()) ? joiner.template store<ConvertedToBf16>() : nullptr;
  }
  static Step store(DataType dtype) {
    switch (dtype) {
      case DataType::kU8:
        return store_a<AsSmall<uint8_t>, kColumns>;
      case DataType::kI8:
        return store_a<AsSmall<int8_t>, kColumns>;
      case DataType::kBF16:
        return store_a<AsBf16, kColumns>;
      case DataType::kF16:
        return store_a<AsF16, kColumns>;
      default:
        return store_a<AsF32, kColumns>;
    }
  }

 private:
  static bool is_number(const VectorStep& step) {
    return step.operand == VectorOperand::kConstant && !std::isnan(step.constant);
  }
  template <class F>
  static Step binary(const VectorStep& step, Access access) {
    switch (step.operand) {
      case VectorOperand::kConstant:
        return step.to_b ? b_by_constant<F> : a_by_constant<F>;
      case VectorOperand::kPort:
        return a_by_port_of<F>(access);
      case VectorOperand::kOther:
        break;
    }
    return step.to_b ? b_by_a<F> : a_by_b<F>;
  }
  template <class F>
  static Step unary(const VectorStep& step) {
    return step.to_b ? of_b<F> : of_a<F>;
  }
  template <class F>
  static Step function(const VectorStep& step) {
    return step.to_b ? of_b<F> : of_a_in_memory<F>;
  }
  template <class F>
  static Step a_by_port_of(Access access) {
    switch (access) {
      case Access::kUniform:
        return a_by_port<F, kColumns, Access::kUniform>;
      case Access::kSpaced:
        return a_by_port<F, kColumns, Access::kSpaced>;
      case Access::kDense:
        break;
    }
    return a_by_port<F, kColumns, Access::kDense>;
  }
  template <class Storage>
  static Step load(const VectorStep& step, Access access) {
    switch (access) {
      case Access::kUniform:
        return load<Storage, Access::kUniform>(step);
      case Access::kSpaced:
        return load<Storage, Access::kSpaced>(step);
      case Access::kDense:
        break;
    }
    return load<Storage, Access::kDense>(step);
  }
  template <class Storage, Access kAccess>
  static Step load(const VectorStep& step) {
    return step.to_b ? load_b<Storage, kColumns, kAccess> : load_a<Storage, kColumns, kAccess>;
  }
  static Step load_of(const VectorStep& step, Access access) {
    switch (step.storage) {
      case DataType::kI32:
        return load<FromI32>(step, access);
      case DataType::kU8:
        return load<AsSmall<uint8_t>>(step, access);
      case DataType::kI8:
        return load<AsSmall<int8_t>>(step, access);
      case DataType::kBF16:
        return load<AsBf16>(step, access);
      case DataType::kF16:
        return load<AsF16>(step, access);
      default:
        return load<AsF32>(step, access);
    }
  }
};

bool has_port(const VectorStep& step) {
  return step.op == VectorOp::kLoad || step.operand == VectorOperand::kPort;
}

Access access_of(const TapePort& port) {
  if (port.column_stride == 1) return Access::kDense;
  return port.column_stride == 0 ? Access::kUniform : Access::kSpaced;
}

template <int kColumns>
void join_steps(const VectorProgram& chain, std::span<const VectorStep> steps, bool rounds_at_last,
                Call* calls) {
  if (HWY_TARGET != HWY_AVX3 && HWY_TARGET != HWY_AVX2) return;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Joiner<kColumns> joiner(steps.subspan(i), calls + i);
    Step joined = joiner.load();
    if (joined == nullptr) joined = joiner.gate();
    if (joined == nullptr)
      joined = Binder<kColumns>::joined_with_store(chain, rounds_at_last, joiner);
    if (joined != nullptr) calls[i].run = joined;
  }
}

// All rows of `vectors` (a multiple of kColumns, or one group) columns of vectors from `column` on.
template <int kColumns>
void run_columns(const VectorProgram& chain, int64_t rows, int64_t column, int64_t vectors,
                 int64_t column_step, std::span<const TapePort> ports, const TapePort& sink) {
  std::array<Call, VectorProgram::kMostSteps + 1> calls;
  auto steps = chain.steps();
  const bool rounds_at_last = chain.result() == DataType::kBF16 && !steps.empty() &&
                              steps.back().op == VectorOp::kRoundBf16 && !steps.back().to_b;
  if (rounds_at_last) steps = steps.first(steps.size() - 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    Access access = Access::kDense;
    if (has_port(steps[i])) {
      calls[i].port = ports[steps[i].port];
      access = access_of(calls[i].port);
    }
    calls[i].run = Binder<kColumns>::step(steps[i], access);
    calls[i].constant = steps[i].constant;
    calls[i].high = steps[i].high;
  }
  Call& last = calls[steps.size()];
  if (const auto& to = chain.quantize()) {
    last = {Binder<kColumns>::quantize(chain.result()), to->low, to->high, to->zero, {}};
  } else {
    last.run = rounds_at_last ? Binder<kColumns>::store_rounded_bf16()
                              : Binder<kColumns>::store(chain.result());
  }
  last.port = sink;
  join_steps<kColumns>(chain, steps, rounds_at_last, calls.data());

  constexpr int kRows = kGroup / kColumns;
  const V zero = hn::Zero(D());
  Group group;
  group.column_step = column_step;
  // Rows that fill no group are groups of one row again and again.
  for (group.row = 0; group.row < rows; group.row += group.row_step == 1 ? kRows : 1) {
    group.row_step = group.row + kRows <= rows ? 1 : 0;
    for (int64_t i = 0; i < vectors; i += kColumns) {
      group.column = column + i * kLanes;
      calls[0].run(calls.data(), group, zero, zero, zero, zero, zero, zero, zero, zero);
    }
  }
}

}  // namespace

bool vector_program_fits(int64_t columns, const TapePort& sink) {
  return columns >= kLanes && sink.column_stride == 1;
}

// Vectors of a row end where the row does: the last one may overlap the one before it. These two
// are of one group then, whose steps read all vectors before the last one writes any: what is read
// may be memory that is written.
void run_vector_program(const VectorProgram& chain, int64_t rows, int64_t columns,
                        std::span<const TapePort> ports, const TapePort& sink) {
  const bool overlaps = columns % kLanes != 0;
  int64_t column = 0, vectors = columns / kLanes - (overlaps ? 1 : 0);
  const auto take = [&](int64_t count) {
    const int64_t from = column;
    column += count * kLanes;
    vectors -= count;
    return from;
  };
  if (const int64_t eights = vectors / 8 * 8; eights > 0)
    run_columns<8>(chain, rows, take(eights), eights, kLanes, ports, sink);
  if (vectors >= 4) run_columns<4>(chain, rows, take(4), 4, kLanes, ports, sink);
  if (vectors >= 2) run_columns<2>(chain, rows, take(2), 2, kLanes, ports, sink);
  if (vectors == 1) run_columns<1>(chain, rows, take(1), 1, kLanes, ports, sink);
  if (overlaps) run_columns<2>(chain, rows, column, 2, columns - kLanes - column, ports, sink);
}

#else

// With a lane at a time these programs gain nothing over tiles (tape_run.cc).
bool vector_program_fits(int64_t, const TapePort&) { return false; }
void run_vector_program(const VectorProgram&, int64_t, int64_t, std::span<const TapePort>,
                        const TapePort&) {}

#endif

}  // namespace anneal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
