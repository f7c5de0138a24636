// "cuda.pointwise.tiled": a copy to other strides. "cuda.pointwise.table": a function of one 8-bit
// number. "cuda.pointwise.strided": a program over operands of any strides.
#include "anneal/kernels/cuda/kernels/elementwise.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/tiled_copy.h"

namespace anneal::cuda {
namespace {

KernelResult make_tiled(const Pointwise& op, const Request& request) {
  if (!op.program.is_identity()) return refuse("a program that computes something");
  return make_tiled_copy(OperandViews(request), "pointwise");
}

KernelResult make_table(const Pointwise& op, const Request& request) {
  const auto table = byte_table(op.program, request);
  if (!table) return refuse(table.reason());
  return make_lookup(op.program, *table, OperandViews(request), "pointwise_table");
}

KernelResult make_pointwise(const Pointwise& op, const Request& request) {
  return make_elementwise(op.program, OperandViews(request), "pointwise");
}

constexpr KernelEntry kPointwiseEntries[] = {
    entry<Pointwise, make_tiled>("cuda.pointwise.tiled"),
    entry<Pointwise, make_table>("cuda.pointwise.table"),
    entry<Pointwise, make_pointwise>("cuda.pointwise.strided"),
};

}  // namespace

std::span<const KernelEntry> pointwise_entries() { return kPointwiseEntries; }

}  // namespace anneal::cuda
