#include "anneal/engine/plan_bytes.h"

#include <fmt/format.h>

namespace anneal {
namespace {

constexpr int kMaxBodyDepth = 128;

Size load_size_of(ByteReader& from, const SizeTable& sizes) {
  const Size size = load_size(from);
  if (!size.known() && size.expression() >= sizes.expression_count())
    from.refuse("a size outside the table");
  return size;
}

void save_shape(ByteWriter& to, const Shape& shape) {
  to.number<uint8_t>(static_cast<uint8_t>(shape.rank()));
  for (const Size size : shape) save(to, size);
}

Shape load_shape(ByteReader& from, const SizeTable& sizes) {
  const auto rank = from.number<uint8_t>();
  if (rank > kMaxRank) from.refuse(fmt::format("a shape of {} axes", rank));
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.push_back(load_size_of(from, sizes));
  return shape;
}

template <class T>
T load_enum(ByteReader& from, T first, T last, std::string_view what) {
  const auto value = from.number<uint8_t>();
  if (value < static_cast<uint8_t>(first) || value > static_cast<uint8_t>(last))
    from.refuse(fmt::format("{} is no {}", value, what));
  return static_cast<T>(value);
}

void save_texts(ByteWriter& to, const std::vector<std::string>& texts) {
  to.number(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) to.text(text);
}

std::vector<std::string> load_texts(ByteReader& from) {
  std::vector<std::string> texts(from.count(sizeof(uint32_t)));
  for (std::string& text : texts) text = from.text();
  return texts;
}

void save_indices(ByteWriter& to, const std::vector<uint32_t>& indices) {
  to.number(static_cast<uint32_t>(indices.size()));
  for (const uint32_t index : indices) to.number(index);
}

// Indices below limit; kNoSlot too if `optional`.
std::vector<uint32_t> load_indices(ByteReader& from, size_t limit, bool optional) {
  std::vector<uint32_t> indices(from.count(sizeof(uint32_t)));
  for (uint32_t& index : indices) {
    index = from.number<uint32_t>();
    if (index >= limit && !(optional && index == kNoSlot))
      from.refuse("a slot that does not exist");
  }
  return indices;
}

void save_slot(ByteWriter& to, const Slot& slot) {
  to.text(slot.name);
  to.number(static_cast<uint8_t>(slot.type.container));
  to.number(static_cast<uint8_t>(slot.type.dtype));
  save_shape(to, slot.type.shape);
  save_shape(to, slot.strides);
  to.number(static_cast<uint8_t>(slot.storage));
  to.number(slot.device);
  to.number(slot.offset);
  to.number(slot.base);
  save(to, slot.base_offset);
  to.number(slot.first_step);
  to.number(slot.last_step);
}

Slot load_slot(ByteReader& from, const Plan& plan) {
  Slot slot;
  slot.name = from.text();
  slot.type.container =
      load_enum(from, Container::kTensor, Container::kOptionalSequence, "container");
  slot.type.dtype = load_enum(from, DataType::kF32, DataType::kString, "element type");
  slot.type.shape = load_shape(from, *plan.sizes);
  slot.strides = load_shape(from, *plan.sizes);
  slot.storage = load_enum(from, Storage::kInput, Storage::kDataDependent, "storage");
  slot.device = from.number<uint8_t>();
  if (slot.device >= plan.devices.size()) from.refuse("a slot on a device that does not exist");
  slot.offset = from.number<uint64_t>();
  slot.base = from.number<uint32_t>();
  slot.base_offset = load_size_of(from, *plan.sizes);
  slot.first_step = from.number<uint32_t>();
  slot.last_step = from.number<uint32_t>();
  return slot;
}

void save_step(ByteWriter& to, const Step& step) {
  to.text(step.name);
  save_texts(to, step.origins);
  to.text(step.kernel);
  to.number(step.device);
  save(to, step.op);
  to.number(static_cast<uint32_t>(step.epilogues.size()));
  for (const Program& program : step.epilogues) {
    to.number<uint8_t>(program.empty() ? 0 : 1);
    if (!program.empty()) save(to, program);
  }
  to.number(step.op_input_count);
  save_indices(to, step.inputs);
  save_indices(to, step.outputs);
  to.blob(step.tactic);
  to.text(step.runner_up);
  to.blob(step.runner_up_tactic);
}

Step load_step(ByteReader& from, const Plan& plan) {
  Step step;
  step.name = from.text();
  step.origins = load_texts(from);
  step.kernel = from.text();
  step.device = from.number<uint8_t>();
  if (step.device >= plan.devices.size()) from.refuse("a step on a device that does not exist");
  step.op = load_op(from);
  if (const auto* tensor = std::get_if<SizeTensor>(&step.op))
    for (const Size size : tensor->elements)
      if (!size.known() && size.expression() >= plan.sizes->expression_count())
        from.refuse("a size outside the table");
  step.epilogues.resize(from.count(1));
  for (Program& program : step.epilogues)
    if (from.boolean()) program = load_program(from);
  step.op_input_count = from.number<uint32_t>();
  step.inputs = load_indices(from, plan.slots.size(), true);
  step.outputs = load_indices(from, plan.slots.size(), false);
  if (step.op_input_count > step.inputs.size()) from.refuse("more op inputs than inputs");
  const auto tactic = from.blob();
  step.tactic.assign(tactic.begin(), tactic.end());
  step.runner_up = from.text();
  const auto other = from.blob();
  step.runner_up_tactic.assign(other.begin(), other.end());
  return step;
}

void save_port_pairs(ByteWriter& to, const std::vector<PortPair>& pairs) {
  to.number(static_cast<uint32_t>(pairs.size()));
  for (const PortPair& pair : pairs) to.number(pair.input), to.number(pair.output);
}

std::vector<PortPair> load_port_pairs(ByteReader& from) {
  std::vector<PortPair> pairs(from.count(2 * sizeof(uint32_t)));
  for (PortPair& pair : pairs) pair = {from.number<uint32_t>(), from.number<uint32_t>()};
  return pairs;
}

// outer: of a body, the plan that has the sizes.
Plan load_nested_plan(ByteReader& from, int depth, const Plan* outer) {
  if (depth > kMaxBodyDepth) from.refuse("bodies nested too deep");
  Plan plan;
  plan.target = from.text();
  plan.devices = load_texts(from);
  plan.name = from.text();
  plan.sizes = outer ? outer->sizes : std::make_shared<const SizeTable>(SizeTable::load(from));
  constexpr size_t kLeastOfSlot = 28;  // numbers of load_slot() whose size does not vary
  plan.slots.resize(from.count(kLeastOfSlot));
  for (Slot& slot : plan.slots) slot = load_slot(from, plan);
  plan.inputs = load_indices(from, plan.slots.size(), false);
  plan.outputs = load_indices(from, plan.slots.size(), false);
  if (!outer) {  // check_plan() knows how many weights there are
    plan.input_defaults.resize(from.count(sizeof(uint32_t)));
    for (uint32_t& weight : plan.input_defaults) weight = from.number<uint32_t>();
    plan.updated_ports = load_port_pairs(from);
    plan.appended_ports.resize(from.count(3 * sizeof(uint32_t)));
    for (AppendedPorts& ports : plan.appended_ports)
      ports = {from.number<uint32_t>(), from.number<uint32_t>(), from.number<uint32_t>()};
    plan.states = load_port_pairs(from);
  }
  // One at a time: a forged count of large structs takes no memory before their bytes are read.
  for (size_t left = from.count(1); left > 0; --left) plan.steps.push_back(load_step(from, plan));
  for (size_t left = from.count(1); left > 0; --left)
    plan.bodies.push_back(load_nested_plan(from, depth + 1, &plan));
  plan.arena_bytes.resize(from.count(sizeof(uint64_t)));
  for (uint64_t& bytes : plan.arena_bytes) bytes = from.number<uint64_t>();
  const auto code = from.blob();
  plan.code.assign(code.begin(), code.end());
  if (!outer) {
    if (from.boolean()) {
      const auto symbol = from.number<uint32_t>();
      plan.batch_split = BatchSplit{symbol, from.boolean()};
    }
    plan.is_exact = from.boolean();
  }
  plan.decisions.resize(from.count(3 * sizeof(uint32_t) + 1 + 2 * sizeof(int64_t)));
  for (Decision& decision : plan.decisions)
    decision = {
        from.text(),           from.text(), from.text(), from.boolean(), from.number<int64_t>(),
        from.number<int64_t>()};
  return plan;
}

void save_plan(ByteWriter& to, const Plan& plan, bool is_body) {
  to.text(plan.target);
  save_texts(to, plan.devices);
  to.text(plan.name);
  if (!is_body) plan.sizes->save(to);
  to.number(static_cast<uint32_t>(plan.slots.size()));
  for (const Slot& slot : plan.slots) save_slot(to, slot);
  save_indices(to, plan.inputs);
  save_indices(to, plan.outputs);
  if (!is_body) {
    save_indices(to, plan.input_defaults);
    save_port_pairs(to, plan.updated_ports);
    to.number(static_cast<uint32_t>(plan.appended_ports.size()));
    for (const AppendedPorts& ports : plan.appended_ports)
      to.number(ports.input), to.number(ports.output), to.number(ports.axis);
    save_port_pairs(to, plan.states);
  }
  to.number(static_cast<uint32_t>(plan.steps.size()));
  for (const Step& step : plan.steps) save_step(to, step);
  to.number(static_cast<uint32_t>(plan.bodies.size()));
  for (const Plan& body : plan.bodies) save_plan(to, body, true);
  to.number(static_cast<uint32_t>(plan.arena_bytes.size()));
  for (const uint64_t bytes : plan.arena_bytes) to.number(bytes);
  to.blob(plan.code);
  if (!is_body) {
    to.number<uint8_t>(plan.batch_split ? 1 : 0);
    if (plan.batch_split) {
      to.number(plan.batch_split->symbol);
      to.number<uint8_t>(plan.batch_split->is_fixed);
    }
    to.number<uint8_t>(plan.is_exact);
  }
  to.number(static_cast<uint32_t>(plan.decisions.size()));
  for (const Decision& decision : plan.decisions) {
    to.text(decision.stage);
    to.text(decision.subject);
    to.text(decision.text);
    to.number(static_cast<uint8_t>(decision.refused));
    to.number(decision.saved_launches);
    to.number(decision.saved_bytes);
  }
}

}  // namespace

void save(ByteWriter& to, const Plan& plan) { save_plan(to, plan, false); }

Plan load_plan(ByteReader& from) { return load_nested_plan(from, 0, nullptr); }

}  // namespace anneal
