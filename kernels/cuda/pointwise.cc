// "cuda.pointwise.strided": a program over operands of any strides.
#include "anneal/kernels/cuda/elementwise.h"
#include "anneal/kernels/cuda/entries.h"

namespace anneal::cuda {
namespace {

Made make_pointwise(const Pointwise& op, const Request& request) {
  return make_elementwise(op.program, Seen(request), "pointwise");
}

constexpr KernelEntry kEntries[] = {entry<Pointwise, make_pointwise>("cuda.pointwise.strided")};

}  // namespace

std::span<const KernelEntry> pointwise_entries() { return kEntries; }

}  // namespace anneal::cuda
