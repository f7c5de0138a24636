#include "anneal/engine/builder/work/step_operations.h"

#include <algorithm>
#include <cmath>

namespace anneal {
namespace {

constexpr double kTerm = 2;  // a multiplication and an addition

double elements_of(const Dims& dims) { return static_cast<double>(count(dims)); }

// 1 where there is no such axis.
double size_at(const Dims& dims, int axis) {
  return axis < 0 || axis >= dims.rank() ? 1.0 : static_cast<double>(dims[axis]);
}

double operations_in(const Program& program) {
  return static_cast<double>(std::ranges::count_if(program.code(), [](const Instruction& each) {
    return each.opcode != Opcode::kInput && each.opcode != Opcode::kConstant &&
           each.opcode != Opcode::kIndex && !is_storage_rounding(each);
  }));
}

// The operations of one result. axes: the number of those that are interpolated.
double interpolation(ResizeMode mode, double axes) {
  if (mode == ResizeMode::kNearest) return 0;
  return kTerm * std::pow(mode == ResizeMode::kLinear ? 2.0 : 4.0, axes);
}

// The operations of an op, without those of its epilogues.
class OpOperations {
 public:
  OpOperations(std::span<const Dims> inputs, std::span<const Dims> outputs)
      : inputs_(inputs), outputs_(outputs) {
    for (const Dims& output : outputs) written_ += elements_of(output);
  }

  // Ops that move elements, find sizes or run bodies, and those of libraries.
  template <class T>
  StepOperations operator()(const T&) const {
    return {};
  }

  StepOperations operator()(const Conv&) const {
    return {kTerm * written_ * elements(1) / std::max(size_at(input(1), 0), 1.0), 0};
  }
  StepOperations operator()(const ConvTranspose&) const {
    return {kTerm * elements(0) * elements(1) / std::max(size_at(input(1), 0), 1.0), 0};
  }
  StepOperations operator()(const MatMul& op) const {
    return {kTerm * written_ * size_at(input(0), input(0).rank() - (op.transpose_a ? 2 : 1)), 0};
  }
  StepOperations operator()(const Attention& op) const {
    const Dims& q = input(0);
    const double scores = size_at(q, 0) * size_at(q, 1) * size_at(q, 2) * size_at(input(1), 2);
    return {kTerm * scores * (size_at(q, 3) + size_at(input(2), 3)),
            scores * (kSoftmax + operations_in(op.score))};
  }
  StepOperations operator()(const Recurrent&) const {
    return {kTerm * size_at(input(0), 0) * size_at(input(0), 1) * (elements(1) + elements(2)), 0};
  }

  StepOperations operator()(const LinearAttention&) const {
    const Dims &q = input(0), &v = input(2);
    const double updates = elements(2) * size_at(q, 3);  // of an element of a state
    const double heads = std::max(1.0, size_at(q, 2) / std::max(size_at(v, 2), 1.0));
    const bool has_decay = input(4).rank() > 0, has_beta = input(5).rank() > 0;
    return {kTerm * updates * (heads + (has_beta ? 2 : 1)), has_decay ? updates : 0};
  }

  StepOperations operator()(const Pointwise& op) const {
    return {0, outputs_.empty() ? 0 : elements_of(outputs_[0]) * operations_in(op.program)};
  }
  StepOperations operator()(const Softmax& op) const {
    return {0, written_ * (kSoftmax + operations_in(op.map))};
  }
  StepOperations operator()(const Normalize& op) const {
    // Mean, difference, square, sum, difference, product; without a mean square, sum, product.
    return {0, elements(0) * (op.subtract_mean ? 6 : 3)};
  }
  StepOperations operator()(const Reduce& op) const {
    return {0, elements(0) * (1 + operations_in(op.map))};
  }
  StepOperations operator()(const ArgReduce&) const { return {0, elements(0)}; }
  StepOperations operator()(const TopK&) const { return {0, elements(0)}; }
  StepOperations operator()(const DecisionTrees& op) const {
    return {0, written_ * static_cast<double>(op.depth)};  // comparisons, at most
  }
  StepOperations operator()(const Cumulative&) const { return {0, elements(0)}; }
  StepOperations operator()(const Pool& op) const {
    double window = 1;
    for (const int64_t size : op.kernel) window *= static_cast<double>(size);
    return {0, (outputs_.empty() ? 0 : elements_of(outputs_[0])) * window};
  }
  StepOperations operator()(const Resize& op) const {
    return {0, written_ * interpolation(op.mode, static_cast<double>(op.axes.size()))};
  }
  StepOperations operator()(const GridSample& op) const {
    return {0, written_ * interpolation(op.mode, std::max(input(0).rank() - 2, 0))};
  }
  StepOperations operator()(const RoiAlign& op) const {
    const auto samples = static_cast<double>(std::max<int64_t>(op.sampling_ratio, 1));
    return {0, written_ * samples * samples * interpolation(ResizeMode::kLinear, 2)};
  }
  StepOperations operator()(const Quantize&) const {
    return {0, written_ * 3};  // quotient, rounding, zero point
  }
  StepOperations operator()(const Dequantize&) const { return {0, written_ * 2}; }
  StepOperations operator()(const ScatterElements& op) const { return of_updates(op.reduction); }
  StepOperations operator()(const ScatterND& op) const { return of_updates(op.reduction); }

 private:
  static constexpr double kSoftmax = 5;  // maximum, difference, exp, sum, quotient

  const Dims& input(size_t i) const { return i < inputs_.size() ? inputs_[i] : none_; }
  double elements(size_t i) const { return i < inputs_.size() ? elements_of(inputs_[i]) : 0; }
  StepOperations of_updates(ScatterReduction reduction) const {
    return {0, reduction == ScatterReduction::kNone ? 0 : elements(2)};
  }

  std::span<const Dims> inputs_, outputs_;
  const Dims none_ = {};
  double written_ = 0;
};

}  // namespace

StepOperations operations_of(const Step& step, std::span<const Dims> inputs,
                             std::span<const Dims> outputs) {
  StepOperations all = std::visit(OpOperations(inputs, outputs), step.op);
  for (size_t i = 0; i < step.epilogues.size() && i < outputs.size(); ++i)
    all.others += elements_of(outputs[i]) * operations_in(step.epilogues[i]);
  return all;
}

}  // namespace anneal
