#include "anneal/engine/body_operands.h"

namespace anneal {

BodyOperands operands_of_bodies(const Op& op, size_t inputs, size_t outputs) {
  const bool is_if = std::holds_alternative<If>(op);
  const auto* const loop = std::get_if<Loop>(&op);
  const auto* const scan = std::get_if<Scan>(&op);
  BodyOperands all{.inputs = std::vector<BodyOperand>(inputs),
                   .outputs = std::vector<BodyOperand>(outputs),
                   .first_carried = loop ? size_t{2} : 0};
  if (loop) all.carried = static_cast<size_t>(loop->carried);
  if (scan) all.carried = static_cast<size_t>(scan->carried);
  for (size_t i = 0; i < inputs; ++i) {
    all.inputs[i].port = static_cast<int64_t>(i) - (is_if ? 1 : 0);
    all.inputs[i].is_read = (is_if && i == 0) || (loop && i < 2);
    if (scan && i >= all.carried && i - all.carried < scan->axes.size())
      all.inputs[i].axis = scan->axes[i - all.carried];
  }
  for (size_t k = 0; k < outputs; ++k) {
    all.outputs[k].port = static_cast<int64_t>(k) + (loop ? 1 : 0);
    if (scan && k >= all.carried) all.outputs[k].axis = scan->output_axes[k - all.carried];
  }
  return all;
}

}  // namespace anneal
