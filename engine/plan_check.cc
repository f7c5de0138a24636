#include "anneal/engine/plan_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"
#include "anneal/engine/body_operands.h"
#include "anneal/engine/memory_planner.h"
#include "anneal/engine/rows_outermost.h"
#include "anneal/engine/symbols.h"

namespace anneal {
namespace {

[[noreturn]] void refuse(std::string why) { fail(ErrorCode::kIncompatiblePlan, std::move(why)); }

bool is_arena_base(const Slot& slot) { return slot.storage == Storage::kArena; }

bool is_on_gpu(const Plan& plan, uint32_t slot) {
  return plan.slots[slot].device + size_t{1} < plan.devices.size();
}

void check_slot_form(const Plan& plan, const Slot& slot) {
  const auto bad = [&](std::string_view why) {
    refuse(fmt::format("slot \"{}\" {}", slot.name, why));
  };
  if (slot.type.container != Container::kTensor || slot.type.dtype == DataType::kString)
    bad("holds something other than a tensor of numbers");
  if (slot.strides.rank() != slot.type.shape.rank()) bad("has more or fewer strides than axes");
  for (const Size size : slot.type.shape)
    if (size.known() && size.value() < 0) bad("has a negative size");
  for (const Size stride : slot.strides)
    if (stride.known() && stride.value() < 0) bad("has a negative stride");
  if (slot.storage == Storage::kView) {
    if (slot.base >= plan.slots.size() || plan.slots[slot.base].storage == Storage::kView ||
        plan.slots[slot.base].storage == Storage::kDataDependent)
      bad("is a view of nothing");
    if (size_of(plan.slots[slot.base].type.dtype) != size_of(slot.type.dtype))
      bad("is a view of elements of another size");
    if (slot.base_offset.known() && slot.base_offset.value() < 0) bad("starts before its base");
  }
  if (slot.storage == Storage::kDataDependent && slot.base != kNoSlot) {
    const bool is_there = slot.base < plan.slots.size();
    const Slot& base = plan.slots[is_there ? slot.base : 0];
    if (!is_there || base.storage != Storage::kDataDependent || base.base != kNoSlot ||
        base.device != slot.device)
      bad("has the memory of a slot that is not late");
  }
}

// The context gives late slots dense memory, so their kernels must have been made for that. On CPUs
// it may have channels last, but for the plan's outputs.
void check_late_slots(const Plan& plan, SizeTable& sizes) {
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.storage != Storage::kDataDependent) continue;
    const bool may_have_channels_last =
        plan.devices.size() == 1 && std::ranges::count(plan.outputs, i) == 0;
    if (slot.strides != row_major_strides(slot.type.shape, sizes) &&
        !(may_have_channels_last && slot.strides == channels_last_strides(slot.type.shape, sizes)))
      refuse(fmt::format("slot \"{}\" is late and not row-major", slot.name));
  }
}

void check_view_within_base(const Plan& plan, const Slot& slot) {
  const Slot& base = plan.slots[slot.base];
  if (!known(slot.type.shape) || !known(slot.strides) || !slot.base_offset.known() ||
      !known(base.type.shape) || !known(base.strides))
    return;  // checked with real sizes when shapes are bound
  const int64_t view = extent(dims_of(slot.type.shape), dims_of(slot.strides));
  if (view == 0) return;  // it begins nowhere
  const int64_t room = extent(dims_of(base.type.shape), dims_of(base.strides));
  if (slot.base_offset.value() > room - view)
    refuse(fmt::format("slot \"{}\" reaches beyond its base", slot.name));
}

// A weight is of its slot's type and row-major, or the memory in which a slot of other strides
// lies.
void check_weight(const Slot& slot, std::span<const Tensor> weights) {
  if (slot.offset >= weights.size())
    refuse(fmt::format("slot \"{}\" names a weight that is not there", slot.name));
  const Tensor& weight = weights[slot.offset];
  if (is_row_major_weight(slot, weight)) return;
  const Type& type = slot.type;
  if (weight.dtype() != type.dtype || weight.dims().rank() != 1 || !known(type.shape) ||
      !known(slot.strides) || extent(dims_of(type.shape), dims_of(slot.strides)) != weight.count())
    refuse(fmt::format("slot \"{}\" and its weight differ in type", slot.name));
}

void check_ports(const Plan& plan) {
  const auto check = [&](const std::vector<uint32_t>& ports, Storage storage,
                         std::string_view what) {
    std::vector<uint32_t> sorted = ports;
    std::sort(sorted.begin(), sorted.end());
    const auto of_storage =
        std::count_if(plan.slots.begin(), plan.slots.end(),
                      [&](const Slot& slot) { return slot.storage == storage; });
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
        of_storage != static_cast<ptrdiff_t>(ports.size()) ||
        std::any_of(ports.begin(), ports.end(),
                    [&](uint32_t port) { return plan.slots[port].storage != storage; }))
      refuse(fmt::format("its {} are not the slots that are marked so", what));
  };
  check(plan.inputs, Storage::kInput, "inputs");
  // An output whose size depends on values is a late slot.
  std::vector<uint32_t> bound;
  for (const uint32_t port : plan.outputs)
    if (plan.slots[port].storage != Storage::kDataDependent) bound.push_back(port);
  check(bound, Storage::kOutput, "outputs");
}

void check_updated_ports(const Plan& plan) {
  for (const PortPair& port : plan.updated_ports)
    if (port.input >= plan.inputs.size() || port.output >= plan.outputs.size())
      refuse("an output updates an input, and one of them does not exist");
}

void check_appended_ports(const Plan& plan, SizeTable& sizes) {
  for (const auto [input, output, axis] : plan.appended_ports) {
    if (input >= plan.inputs.size() || output >= plan.outputs.size())
      refuse("rows are appended to an input, and it or the output does not exist");
    const Slot &from = plan.slots[plan.inputs[input]], &to = plan.slots[plan.outputs[output]];
    const int rank = from.type.shape.rank();
    const auto rows = static_cast<int>(axis);
    bool fits = from.type.dtype == to.type.dtype && rank == to.type.shape.rank() &&
                axis < static_cast<uint32_t>(rank) && from.strides == to.strides;
    for (int i = 0; fits && i < rank; ++i)
      fits = i == rows || from.type.shape[i] == to.type.shape[i];
    const auto multiply = [&](Size a, Size b) { return sizes.mul(a, b); };
    if (!fits || from.strides != rows_outermost_strides(from.type.shape, rows, multiply))
      refuse(fmt::format("output \"{}\" is not the input \"{}\" with rows behind it", to.name,
                         from.name));
  }
}

void check_states(const Plan& plan) {
  std::vector<bool> is_input(plan.inputs.size()), is_output(plan.outputs.size());
  for (const auto [input, output] : plan.states) {
    if (input >= is_input.size() || output >= is_output.size())
      refuse("an input or output of a state does not exist");
    if (is_input[input] || is_output[output]) refuse("an input or output is two states");
    is_input[input] = is_output[output] = true;
    const Type &from = plan.slots[plan.outputs[output]].type,
               &to = plan.slots[plan.inputs[input]].type;
    if (from.container != Container::kTensor || to.container != Container::kTensor ||
        from.dtype != to.dtype || to.dtype == DataType::kString ||
        from.shape.rank() != to.shape.rank())
      refuse(fmt::format("output \"{}\" cannot be the input \"{}\" of the next run",
                         plan.slots[plan.outputs[output]].name,
                         plan.slots[plan.inputs[input]].name));
  }
}

// That a default has the sizes of a run is for the run to see, as of any input.
void check_defaults(const Plan& plan, std::span<const Tensor> weights) {
  const std::vector<uint32_t>& defaults = plan.input_defaults;
  if (!defaults.empty() && defaults.size() != plan.inputs.size())
    refuse("it has more or fewer default values than inputs");
  for (size_t i = 0; i < defaults.size(); ++i) {
    if (defaults[i] == kNoDefault) continue;
    const Slot& slot = plan.slots[plan.inputs[i]];
    if (defaults[i] >= weights.size())
      refuse(fmt::format("the default value of input \"{}\" is not there", slot.name));
    Type type = slot.type;
    type.shape = port_shape(plan, plan.inputs[i]);
    if (!may_hold(type, weights[defaults[i]]))
      refuse(fmt::format("input \"{}\" and its default value differ in type", slot.name));
  }
}

// Parts of inputs and outputs are views along axis 0. If a plan mixes rows, results are wrong, but
// all accesses are within bounds.
void check_batch_split(const Plan& plan) {
  if (!plan.batch_split) return;
  const SizeTable& sizes = *plan.sizes;
  const uint32_t symbol = plan.batch_split->symbol;
  if (symbol >= sizes.symbols().size()) refuse("the symbol of its batch does not exist");
  if (plan.devices.size() != 1 || !plan.bodies.empty())
    refuse("its batch is split, but it is not for the CPU alone or has control flow");
  if (std::ranges::any_of(plan.slots,
                          [](const Slot& slot) { return slot.storage == Storage::kDataDependent; }))
    refuse("its batch is split, but it has late slots");
  const auto has_rows = [&](uint32_t port) {
    const Slot& slot = plan.slots[port];
    const Shape& shape = slot.type.shape;
    const bool has = shape.rank() > 0 && sizes.symbol_index(shape[0]) == symbol;
    for (int axis = has ? 1 : 0; axis < shape.rank(); ++axis)
      if (contains_symbol(sizes, shape[axis], symbol))
        refuse(fmt::format("port \"{}\" has the rows of its batch elsewhere than on axis 0",
                           slot.name));
    return has;
  };
  if (plan.outputs.empty() || !std::ranges::all_of(plan.outputs, has_rows) ||
      std::ranges::count_if(plan.inputs, has_rows) == 0)
    refuse("its batch is split, but an output or all inputs have no rows");
}

bool is_dense(const Slot& slot, SizeTable& sizes) {
  return slot.strides == row_major_strides(slot.type.shape, sizes) ||
         (slot.type.shape.rank() >= 3 &&
          slot.strides == channels_last_strides(slot.type.shape, sizes));
}

// Values that the context computes are on the CPU.
void check_is_for_device(const Step& step) {
  const auto refuse_step = [&](std::string_view why) {
    refuse(fmt::format("step \"{}\" {}", step.name, why));
  };
  if (!bodies_of(step.op).empty() || std::holds_alternative<SizeTensor>(step.op))
    refuse_step("is for the CPU alone");
}

// Ports lie on the CPU but for those of bodies, views where their bases lie, operands where their
// step runs.
void check_devices(const Plan& plan, bool is_body, SizeTable& sizes) {
  const size_t host = plan.devices.size() - 1;
  if (!plan.devices[host].starts_with("cpu")) refuse("its last device is no CPU");
  const auto refuse_place = [](const Slot& slot) {
    refuse(fmt::format("slot \"{}\" lies on the wrong device", slot.name));
  };
  for (const Slot& slot : plan.slots) {
    if (slot.storage == Storage::kView && slot.device != plan.slots[slot.base].device)
      refuse_place(slot);
    const bool is_port = slot.storage == Storage::kInput || slot.storage == Storage::kOutput;
    if (host != 0 && is_port && slot.strides != row_major_strides(slot.type.shape, sizes))
      refuse(fmt::format("port \"{}\" of a GPU's plan is not row-major", slot.name));
  }
  for (const auto* ports : {&plan.inputs, &plan.outputs})
    for (const uint32_t port : *ports) {
      const Slot& slot = plan.slots[port];
      if (slot.device != host && (!is_body || slot.storage == Storage::kDataDependent))
        refuse_place(slot);
    }
  for (const Step& step : plan.steps) {
    const auto wrong = [&](std::string_view why) {
      refuse(fmt::format("step \"{}\" {}", step.name, why));
    };
    if (step.device != host) check_is_for_device(step);
    if (step.kernel == kTransfer) {
      if (step.inputs.size() != 1 || step.outputs.size() != 1 || step.inputs[0] == kNoSlot)
        wrong("does not copy one slot to one slot");
      const Slot &from = plan.slots[step.inputs[0]], &to = plan.slots[step.outputs[0]];
      const auto* op = std::get_if<Pointwise>(&step.op);
      if (!op || !op->program.is_identity() || !step.epilogues.empty())
        wrong("computes while it copies");
      if (from.device == to.device || (from.device != host && to.device != host) ||
          step.device != std::min(from.device, to.device))
        wrong("does not copy between the CPU and its device");
      if (from.strides != to.strides || from.type != to.type || !is_dense(from, sizes))
        wrong("copies what is not one piece of memory");
      continue;
    }
    if (!bodies_of(step.op).empty()) continue;  // check_operands_of_bodies()
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] != kNoSlot &&
          plan.slots[step.inputs[i]].device !=
              (i < step.op_input_count && is_host_value(step.op, static_cast<int>(i))
                   ? host
                   : step.device))
        wrong("reads a slot of another device");
    for (const uint32_t output : step.outputs)
      if (plan.slots[output].device != step.device) wrong("writes a slot of another device");
  }
}

// The context gives bodies the memory of operands, or dense slices of it, and copies what is
// row-major between devices. REQUIRES: check_types() accepted the step.
void check_operands_of_bodies(const Plan& plan, const Step& step, SizeTable& sizes) {
  const auto check_operand = [&](const BodyOperand& operand, uint32_t index, const Plan& body,
                                 const std::vector<uint32_t>& ports) {
    if (index == kNoSlot) return;
    const Slot& slot = plan.slots[index];
    const bool is_late = plan.slots[base_of(plan, index)].storage == Storage::kDataDependent;
    const bool has_gpu_port =
        operand.port >= 0 && is_on_gpu(body, ports[static_cast<size_t>(operand.port)]);
    if (!is_on_gpu(plan, index) && !has_gpu_port) return;
    if ((is_late && is_on_gpu(plan, index)) || operand.is_read || operand.axis != 0 ||
        body.devices.size() != plan.devices.size() ||
        slot.strides != row_major_strides(slot.type.shape, sizes))
      refuse(fmt::format("step \"{}\" cannot have \"{}\" on a GPU", step.name, slot.name));
  };
  const BodyOperands operands =
      operands_of_bodies(step.op, step.inputs.size(), step.outputs.size());
  for (const BodyUse& use : bodies_of(step.op)) {
    const Plan& body = plan.bodies[static_cast<size_t>(use.body)];
    for (size_t i = 0; i < step.inputs.size(); ++i)
      check_operand(operands.inputs[i], step.inputs[i], body, body.inputs);
    for (size_t k = 0; k < step.outputs.size(); ++k)
      check_operand(operands.outputs[k], step.outputs[k], body, body.outputs);
    if (std::holds_alternative<Loop>(step.op) && is_on_gpu(body, body.outputs[0]))
      refuse(fmt::format("step \"{}\" has its next condition on a GPU", step.name));
  }
}

// Every slot is written once, before it is read; a base counts as written with any of its views.
void check_order(const Plan& plan) {
  std::vector<bool> written(plan.slots.size()), begun(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].storage == Storage::kInput || plan.slots[i].storage == Storage::kWeight)
      written[i] = begun[i] = true;
  for (const Step& step : plan.steps) {
    for (const uint32_t input : step.inputs)
      if (input != kNoSlot && !written[input] && !begun[base_of(plan, input)])
        refuse(fmt::format("step \"{}\" reads slot \"{}\" before it is written", step.name,
                           plan.slots[input].name));
    for (const uint32_t output : step.outputs) {
      const Storage base = plan.slots[base_of(plan, output)].storage;
      if (written[output] || base == Storage::kInput || base == Storage::kWeight)
        refuse(fmt::format("step \"{}\" writes slot \"{}\", which is not its to write", step.name,
                           plan.slots[output].name));
      // Memory that a run has given to a tensor of the same size already, and gives to no other.
      const Slot& slot = plan.slots[output];
      if (slot.storage == Storage::kDataDependent && slot.base != kNoSlot &&
          (!written[slot.base] || plan.slots[slot.base].type != slot.type))
        refuse(fmt::format("step \"{}\" writes slot \"{}\" over one of another size, or before it",
                           step.name, slot.name));
      written[output] = begun[base_of(plan, output)] = true;
    }
  }
  for (const uint32_t output : plan.outputs)
    if (!begun[base_of(plan, output)])
      refuse(fmt::format("nothing writes output \"{}\"", plan.slots[output].name));
}

void check_lifetimes(const Plan& plan) {
  const auto uses = [&](uint32_t index, uint32_t step) {
    const Slot& base = plan.slots[base_of(plan, index)];
    if (is_arena_base(base) && (step < base.first_step || step > base.last_step))
      refuse(fmt::format("step \"{}\" uses slot \"{}\" outside its life", plan.steps[step].name,
                         plan.slots[index].name));
  };
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    for (const uint32_t input : plan.steps[i].inputs)
      if (input != kNoSlot) uses(input, i);
    for (const uint32_t output : plan.steps[i].outputs) uses(output, i);
  }
}

[[noreturn]] void blame_library(const Custom& op, ErrorCode code, std::string_view why) {
  throw LibraryError(code, fmt::format("{} does not fit the engine: {}. Give the library that the "
                                       "engine was built with, or build the engine again",
                                       described_operator(op), why));
}

Facts infer_by_library(const Custom& op, FunctionRef<Facts()> infer) {
  try {
    return infer();
  } catch (const Error& error) {
    blame_library(op, error.code(), error.what());
  }
}

void check_types(const Plan& plan, std::span<const Tensor> weights, SizeTable& sizes) {
  const auto facts = infer_slots(plan, weights, sizes);
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (!facts[i]) continue;
    const Slot& slot = plan.slots[i];
    const Type& inferred = facts[i]->type;
    bool equal = inferred.dtype == slot.type.dtype && inferred.container == slot.type.container &&
                 inferred.shape.rank() == slot.type.shape.rank();
    for (int axis = 0; equal && axis < inferred.shape.rank(); ++axis)
      equal = inferred.shape[axis].is_unknown()
                  ? slot.storage == Storage::kDataDependent
                  : allows(inferred.shape[axis], slot.type.shape[axis], sizes);
    if (equal) continue;
    const std::string why = fmt::format("slot \"{}\" is {}{}, but its step gives {}{}", slot.name,
                                        to_string(slot.type.dtype), sizes.text(slot.type.shape),
                                        to_string(inferred.dtype), sizes.text(inferred.shape));
    for (const Step& step : plan.steps)
      if (const auto* op = std::get_if<Custom>(&step.op);
          op && std::ranges::find(step.outputs, i) != step.outputs.end())
        blame_library(*op, ErrorCode::kIncompatiblePlan, why);
    refuse(why);
  }
}

void take_open_sizes(Shape& shape, const Shape& names) {
  for (int axis = 0; axis < std::min(shape.rank(), names.rank()); ++axis)
    if (!shape[axis].known()) shape[axis] = names[axis];
}

Signature signature_of(const Plan& body) {
  Signature signature;
  for (const uint32_t input : body.inputs) signature.inputs.push_back(body.slots[input].type);
  for (const uint32_t output : body.outputs) signature.outputs.push_back(body.slots[output].type);
  return signature;
}

// For a static plan: buffers are within their device's arena, and those that live together do not
// overlap.
void check_arena(const Plan& plan, size_t device) {
  const uint64_t arena_bytes = plan.arena_bytes[device];
  struct Region {
    uint64_t begin, end;
    const Slot* slot;
  };
  std::vector<Region> regions;
  for (const Slot& slot : plan.slots) {
    if (!is_arena_base(slot) || slot.device != device) continue;
    const auto bytes =
        static_cast<uint64_t>(extent(dims_of(slot.type.shape), dims_of(slot.strides))) *
        size_of(slot.type.dtype);
    if (slot.offset % kArenaAlignment != 0 || slot.offset > arena_bytes ||
        bytes > arena_bytes - slot.offset)
      refuse(fmt::format("slot \"{}\" lies outside the arena", slot.name));
    regions.push_back({slot.offset, slot.offset + bytes, &slot});
  }
  if (arena_bytes > kMaxArenaBytes) refuse("its arena is larger than any memory");
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < regions.size(); ++i) {
    for (size_t j = i + 1; j < regions.size() && regions[j].begin < regions[i].end; ++j) {
      const Slot &a = *regions[i].slot, &b = *regions[j].slot;
      if (a.first_step <= b.last_step && b.first_step <= a.last_step)
        refuse(fmt::format("slots \"{}\" and \"{}\" overlap while both live", a.name, b.name));
    }
  }
}

}  // namespace

uint32_t base_of(const Plan& plan, uint32_t index) {
  return plan.slots[index].storage == Storage::kView ? plan.slots[index].base : index;
}

bool covers_base(const Plan& plan, const Slot& slot) {
  if (slot.storage != Storage::kView) return true;
  const Slot& base = plan.slots[slot.base];
  return slot.base_offset == Size(0) && slot.type.shape == base.type.shape &&
         slot.strides == base.strides;
}

bool is_row_major_weight(const Slot& slot, const Tensor& weight) {
  return type_of(weight) == slot.type && shape_of(row_major_strides(weight.dims())) == slot.strides;
}

const Tensor* default_value(const Plan& plan, std::span<const Tensor> weights, size_t input) {
  const bool has_one =
      input < plan.input_defaults.size() && plan.input_defaults[input] != kNoDefault;
  return has_one ? &weights[plan.input_defaults[input]] : nullptr;
}

bool may_hold(const Type& type, const Tensor& value) {
  bool fits = type.container == Container::kTensor && type.dtype == value.dtype() &&
              type.shape.rank() == value.dims().rank();
  for (int axis = 0; fits && axis < type.shape.rank(); ++axis)
    fits = !type.shape[axis].known() || type.shape[axis].value() == value.dims()[axis];
  return fits;
}

bool is_static(const Plan& plan) {
  return std::all_of(plan.slots.begin(), plan.slots.end(), [](const Slot& slot) {
    return known(slot.type.shape) && known(slot.strides) && slot.base_offset.known();
  });
}

int64_t extent(const Dims& dims, const Dims& strides) {
  int64_t last = 0;
  bool empty = false;
  if (std::ranges::any_of(dims.span(), [](int64_t size) { return size < 0; }))
    fail(ErrorCode::kInvalidArgument,
         fmt::format("dims {} have a negative size: an input is too small", to_string(dims)));
  for (int axis = 0; axis < dims.rank(); ++axis) {
    int64_t reach = 0;
    if (strides[axis] < 0 ||
        __builtin_mul_overflow(std::max<int64_t>(dims[axis] - 1, 0), strides[axis], &reach) ||
        __builtin_add_overflow(last, reach, &last) || last > int64_t{1} << 46)
      fail(ErrorCode::kInvalidArgument, fmt::format("dims {} with strides {} are beyond any memory",
                                                    to_string(dims), to_string(strides)));
    empty |= dims[axis] == 0;
  }
  return empty ? 0 : last + 1;
}

std::vector<std::optional<Fact>> infer_slots(const Plan& plan, std::span<const Tensor> weights,
                                             SizeTable& sizes) {
  std::vector<std::optional<Fact>> facts(plan.slots.size());
  std::vector<TensorView> values(plan.slots.size());
  for (const uint32_t input : plan.inputs)
    facts[input] = Fact{plan.slots[input].type, std::nullopt};
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].storage != Storage::kWeight) continue;
    const Tensor& weight = weights[plan.slots[i].offset];
    if (is_row_major_weight(plan.slots[i], weight)) values[i] = kernel_view(weight);
    facts[i] = Fact{plan.slots[i].type, std::nullopt};
  }
  // The facts for later steps: open sizes are those of the slots, as bodies and other steps name
  // them. check_types() compares them with the inferred ones.
  std::vector<std::optional<Fact>> seen = facts;
  std::vector<Signature> bodies;
  for (const Plan& body : plan.bodies) bodies.push_back(signature_of(body));
  for (const Step& step : plan.steps) {
    with_context(
        [&] { return fmt::format("step \"{}\" ({})", step.name, to_string(step.op)); },
        [&] {
          std::vector<InferInput> inputs;
          for (const uint32_t input : step.inputs) {
            if (input == kNoSlot) {
              inputs.push_back({});
              continue;
            }
            if (!seen[input]) seen[input] = Fact{plan.slots[input].type, std::nullopt};
            inputs.push_back({&*seen[input], values[input].data ? &values[input] : nullptr});
          }
          const auto infer = [&] {
            return infer_layer(step.op, step.epilogues, static_cast<int>(step.op_input_count),
                               InferInputs(inputs, sizes, bodies));
          };
          const auto* const custom = std::get_if<Custom>(&step.op);
          Facts outputs = custom ? infer_by_library(*custom, infer) : infer();
          if (outputs.size() != step.outputs.size()) refuse("it has another number of outputs");
          for (size_t i = 0; i < outputs.size(); ++i) {
            const uint32_t output = step.outputs[i];
            facts[output] = seen[output] = std::move(outputs[i]);
            take_open_sizes(seen[output]->type.shape, plan.slots[output].type.shape);
          }
        });
  }
  return facts;
}

namespace {

// sizes: the plan's, and those that inference makes.
void check_with_bodies(const Plan& plan, std::span<const Tensor> weights, bool is_body,
                       SizeTable& sizes) {
  if (plan.devices.empty()) refuse("it names no device");
  if (plan.arena_bytes.size() != (is_static(plan) ? plan.devices.size() : 0))
    refuse("it has more or fewer arenas than devices");
  for (const Slot& slot : plan.slots) check_slot_form(plan, slot);
  check_late_slots(plan, sizes);
  for (const Slot& slot : plan.slots) {
    if (slot.storage == Storage::kWeight) check_weight(slot, weights);
    if (slot.storage == Storage::kView) check_view_within_base(plan, slot);
  }
  check_ports(plan);
  check_batch_split(plan);
  check_defaults(plan, weights);
  check_updated_ports(plan);
  check_appended_ports(plan, sizes);
  check_states(plan);
  check_devices(plan, is_body, sizes);
  check_order(plan);
  check_lifetimes(plan);
  try {
    check_types(plan, weights, sizes);
  } catch (const LibraryError&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());
  }
  for (const Step& step : plan.steps)
    if (!bodies_of(step.op).empty()) check_operands_of_bodies(plan, step, sizes);
  for (size_t device = 0; is_static(plan) && device < plan.devices.size(); ++device)
    check_arena(plan, device);
  for (const Plan& body : plan.bodies)
    with_context([&] { return fmt::format("body \"{}\"", body.name); },
                 [&] {
                   if (body.devices.size() != 1 && body.devices != plan.devices)
                     refuse("it runs neither on the devices of its plan nor on the CPU alone");
                   if (body.batch_split) refuse("it is a body, and its batch is split");
                   check_with_bodies(body, weights, true, sizes);
                 });
}

}  // namespace

void check_plan(const Plan& plan, std::span<const Tensor> weights) {
  SizeTable sizes = *plan.sizes;
  check_with_bodies(plan, weights, false, sizes);
}

}  // namespace anneal
