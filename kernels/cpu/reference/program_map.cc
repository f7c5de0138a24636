#include "anneal/kernels/cpu/reference/program_map.h"

#include <algorithm>
#include <memory>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cpu/base/workspace.h"

namespace anneal::cpu {
namespace {

size_t result_bytes(const Program& program, const Dims& dims) {
  return cache_aligned(static_cast<size_t>(count(dims)) * size_of(program.results()[0].dtype));
}

}  // namespace

Dims mapped_dims(std::span<const TensorView> inputs, size_t further) {
  Dims dims = inputs[0].dims;
  for (size_t i = further; i < inputs.size(); ++i) {
    const Dims& other = inputs[i].dims;
    const int rank = std::max(dims.rank(), other.rank());
    Dims both = Dims::filled(rank, 1);
    for (const Dims& each : {dims, other})
      for (int axis = 0; axis < each.rank(); ++axis)
        if (each[axis] != 1) both[axis + rank - each.rank()] = each[axis];
    dims = both;
  }
  return dims;
}

Program widened_result(const Program& program) {
  ProgramBuilder builder;
  std::vector<Reg> inputs;
  for (size_t i = 0; i < program.inputs().size(); ++i)
    inputs.push_back(builder.input(static_cast<int>(i), program.inputs()[i]));
  return builder.finish(builder.inline_program(program, inputs)[0],
                        accumulator(program.results()[0].dtype));
}

size_t mapped_bytes(const Program& program, const Dims& dims, size_t inputs) {
  return result_bytes(program, dims) + cache_aligned(inputs * sizeof(TensorView));
}

TensorView mapped(const Program& program, const Dims& dims, const TensorView& x,
                  std::span<const TensorView> further, std::byte* scratch, ThreadTeam& team) {
  const TensorView result{program.results()[0].dtype, dims, row_major_strides(dims), scratch};
  auto* inputs = reinterpret_cast<TensorView*>(scratch + result_bytes(program, dims));
  std::uninitialized_copy_n(&x, 1, inputs);
  std::uninitialized_copy(further.begin(), further.end(), inputs + 1);
  run_program(program, dims, {inputs, further.size() + 1}, {&result, 1}, team);
  return result;
}

}  // namespace anneal::cpu
