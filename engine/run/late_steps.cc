#include "anneal/engine/run/late_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/channels_last.h"
#include "anneal/core/fail.h"
#include "anneal/engine/plan_check.h"
#include "anneal/graph/op/infer.h"

namespace anneal {

void prepare_step(const RunState& run, size_t index, StepState& state) {
  std::vector<TensorView> in = state.inputs, out = state.outputs;
  for (TensorView& view : in) view.data = nullptr;
  for (TensorView& view : out) view.data = nullptr;
  with_context(
      [&] { return fmt::format("while preparing step \"{}\"", run.plan.steps[index].name); },
      [&] { state.prepared = run.loaded.kernels[index]->prepare(in, out, run.resources.threads); });
}

namespace {

// A plan in which no step before finds a symbol is a defect of the builder: verify() proves this of
// every graph.
int64_t value_now(const RunState& run, Size size) {
  const SizeTable& sizes = *run.plan.sizes;
  try {
    return sizes.evaluate(size, run.symbols);
  } catch (const Error&) {
    for (const uint32_t symbol : sizes.symbols_in(size))
      if (!run.symbols[symbol])
        fail(ErrorCode::kInternal,
             fmt::format("no step before finds the size {}", sizes.symbols()[symbol].name));
    throw;
  }
}

// Of a late slot, which may have channels last instead (plan_check.cc).
bool is_row_major_slot(const Slot& slot) {
  const int rank = slot.strides.rank();
  return rank == 0 || slot.strides[rank - 1] == Size(1);
}

}  // namespace

void set_slot_dims(RunState& run, RunMemory& memory, uint32_t index, const Dims& dims) {
  const Slot& slot = run.plan.slots[index];
  const Shape& shape = slot.type.shape;
  for (int axis = 0; axis < std::min(shape.rank(), dims.rank()); ++axis)
    if (const auto symbol = run.plan.sizes->symbol_index(shape[axis]);
        symbol && !run.symbols[*symbol])
      run.symbols[*symbol] = dims[axis];
  Dims expected;
  for (const Size size : shape) expected.push_back(value_now(run, size));
  if (expected != dims)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("\"{}\" became {}, the engine expects {}", slot.name, to_string(dims),
                     run.plan.sizes->text(shape)));
  if (slot.storage != Storage::kDataDependent) return;
  const Dims strides =
      is_row_major_slot(slot) ? row_major_strides(dims) : channels_last_strides(dims);
  static_cast<void>(extent(dims, strides));
  const size_t bytes = static_cast<size_t>(count(dims)) * size_of(slot.type.dtype);
  run.slots[index] = {slot.type.dtype, dims, strides, memory.data_dependent(index, bytes)};
}

namespace {

// The inferred facts of the step's outputs. Inference reads only the operands that decide shapes;
// the contents of the outputs are not needed.
Facts infer_outputs(const RunState& run, const Step& step, std::span<const Dims> found) {
  const size_t count = step.inputs.size();
  std::vector<Fact> facts(count);
  std::vector<InferInput> inputs(count);
  for (size_t k = 0; k < count; ++k) {
    if (step.inputs[k] == kNoSlot) continue;
    const TensorView& view = run.slots[step.inputs[k]];
    const bool decides = k < step.op_input_count && is_host_value(step.op, static_cast<int>(k));
    facts[k].type = {view.dtype, shape_of(view.dims), Container::kTensor};
    inputs[k] = {&facts[k], decides ? &view : nullptr};
  }
  SizeTable scratch;
  return infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count),
                     InferInputs(inputs, scratch), found);
}

Dims dims_of_output(const RunState& run, const Step& step, size_t k, const Fact& fact) {
  if (!known(fact.type.shape) || fact.type.dtype != run.plan.slots[step.outputs[k]].type.dtype)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("output {} became {}{}", k, to_string(fact.type.dtype),
                     SizeTable().text(fact.type.shape)));
  return dims_of(fact.type.shape);
}

}  // namespace

void infer_step(RunState& run, RunMemory& memory, size_t index, ThreadTeam& team) {
  const Step& step = run.plan.steps[index];
  StepState& state = run.steps[index];
  bool as_before = state.prepared != nullptr;
  const auto take = [&](TensorView& view, uint32_t slot) {
    if (slot == kNoSlot) return;
    as_before =
        as_before && view.dims == run.slots[slot].dims && view.strides == run.slots[slot].strides;
    // At once: a failure before it is prepared again must not leave it with other operands.
    if (!as_before) state.prepared.reset();
    view = run.slots[slot];
  };
  for (size_t k = 0; k < step.inputs.size(); ++k) take(state.inputs[k], step.inputs[k]);
  const bool is_inferred = as_before && run.loaded.shaped_by_shapes[index];
  Facts inferred;
  if (!is_inferred) inferred = infer_outputs(run, step, {});
  const Kernel* kernel = run.loaded.kernels[index].get();
  if (kernel) state.found = kernel->find(state.inputs, run.stream(step.device), team);
  if (state.found) inferred = infer_outputs(run, step, state.found->dims);
  for (size_t k = 0; k < step.outputs.size(); ++k)
    set_slot_dims(
        run, memory, step.outputs[k],
        inferred.empty() ? state.outputs[k].dims : dims_of_output(run, step, k, inferred[k]));
  for (size_t k = 0; k < step.outputs.size(); ++k) take(state.outputs[k], step.outputs[k]);
  if (!kernel) return;
  if (!as_before) prepare_step(run, index, state);
}

void write_sizes(const RunState& run, const Step& step) {
  const auto& elements = std::get<SizeTensor>(step.op).elements;
  const TensorView& to = run.slots[step.outputs[0]];
  const int64_t stride = to.strides.rank() == 0 ? 1 : to.strides[0];
  for (size_t i = 0; i < elements.size(); ++i)
    to.as<int64_t>()[static_cast<int64_t>(i) * stride] = value_now(run, elements[i]);
}

}  // namespace anneal
