#include "anneal/kernels/cpu/reduce/reduction_input.h"

#include <array>

#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/reference/program_map.h"

namespace anneal::cpu {

ReductionInput::ReductionInput(Tape tape, int further, const Request& request)
    : tape_(std::move(tape)),
      further_(static_cast<size_t>(further)),
      op_inputs_(static_cast<size_t>(request.op_input_count)),
      run_tape_(run_tape(isa_of(request.device))) {}

Result<ReductionInput> ReductionInput::make(const Program& map, int further,
                                            const Request& request) {
  if (accumulator(map.results()[0].dtype) != DataType::kF32)
    return refuse("a map to another type than f32, f16 and bf16");
  auto tape = Tape::compile(widened_result(map));
  if (!tape) return refuse(tape.reason());
  return ReductionInput(std::move(*tape), further, request);
}

void ReductionInput::aim(Space& space, std::span<const TensorView> inputs) const {
  space.inputs.assign(1, inputs[0]);
  const auto more = inputs.first(op_inputs_).subspan(further_);
  space.inputs.insert(space.inputs.end(), more.begin(), more.end());
}

ReductionInput::Space ReductionInput::space(std::span<const TensorView> inputs,
                                            const ReductionSpace::Axes& folded) const {
  Space made;
  aim(made, inputs);
  const Dims dims = mapped_dims(made.inputs, 1);
  const TensorView* largest = &made.inputs[0];
  for (const TensorView& input : made.inputs)
    if (count(input.dims) > count(largest->dims)) largest = &input;
  made.whole = broadcast(*largest, dims);
  if (count(dims) == 0) return made;

  const ReductionSpace fold(made.whole, folded);
  TapeSpace::Axes axes{fold.kept_axes(), fold.column_axis()};
  for (const int64_t axis : fold.reduced_axes().span()) axes.rows.push_back(axis);
  if (axes.columns < 0) {
    axes.columns = static_cast<int>(axes.rows[axes.rows.rank() - 1]);
    axes.rows = Dims(axes.rows.span().first(static_cast<size_t>(axes.rows.rank()) - 1));
    made.pitch = dims[axes.columns];
  } else {
    made.pitch = fold.column_pitch();
  }
  TensorView sink{DataType::kF32, dims, Dims::filled(dims.rank(), 0)};
  sink.strides[axes.columns] = 1;
  int64_t stride = made.pitch;
  for (int i = axes.rows.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(axes.rows[i]);
    sink.strides[axis] = stride;
    stride *= dims[axis];
  }
  made.blocks = TapeSpace::of_blocks(tape_, made.inputs, {&sink, 1}, axes);
  made.whole.data = nullptr;
  return made;
}

void ReductionInput::run(const Space& space, const BlockRange& block, float* to,
                         std::byte* scratch) const {
  const TensorView sink{DataType::kF32,
                        {},
                        {},
                        reinterpret_cast<std::byte*>(to - block.row * space.pitch - block.column)};
  space.blocks.run(run_tape_, tape_, {space.inputs, {&sink, 1}}, block, scratch);
}

}  // namespace anneal::cpu
