#include "anneal/tests/kernels/op_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/kernels/tensor_text.h"

namespace anneal::testing {
namespace {

// A further input for an epilogue of an op output.
Tensor filled(DataType dtype, const Dims& dims, uint64_t seed) {
  return tensor_from_text(fmt::format("{}{}", to_string(dtype), to_string(dims)), seed);
}

// One value per channel: of axis 1 for images, else of the last axis.
Dims channels(const Op& op, const Dims& dims) {
  const bool image = std::holds_alternative<Conv>(op) || std::holds_alternative<Pool>(op) ||
                     std::holds_alternative<ConvTranspose>(op) ||
                     std::holds_alternative<Resize>(op);
  if (dims.rank() == 0) return dims;
  if (!image || dims.rank() < 3) return {dims[dims.rank() - 1]};
  Dims result = Dims::filled(dims.rank() - 1, 1);
  result[0] = dims[1];
  return result;
}

struct Epilogue {
  Program program;
  std::vector<Tensor> inputs;
};
// of: the op's output.
using MakeEpilogue = Epilogue (*)(const Op& op, DataType of, const Dims& dims);

Epilogue none(const Op&, DataType, const Dims&) { return {}; }

Epilogue bias_relu(const Op& op, DataType of, const Dims& dims) {
  if (of == DataType::kBool) return {parse_program("(bool)->(bool) not($0)"), {}};
  ProgramBuilder b;
  const Reg sum = b.apply(Opcode::kAdd, b.input(0, accumulator(of)), b.input(1, of));
  const Reg result = b.apply(Opcode::kMax, sum, b.constant(sum.type, int64_t{0}));
  return {b.finish(result, of), {filled(of, channels(op, dims), 7)}};
}

Epilogue residual(const Op&, DataType of, const Dims& dims) {
  if (of == DataType::kBool)
    return {parse_program("(bool,bool)->(bool) or($0,$1)"), {filled(of, dims, 6)}};
  ProgramBuilder b;
  const Reg sum = b.apply(Opcode::kAdd, b.input(0, accumulator(of)), b.input(1, of));
  return {b.finish(sum, of), {filled(of, dims, 6)}};
}

Epilogue residual_index(const Op&, DataType of, const Dims& dims) {
  if (of == DataType::kBool)
    return {parse_program("(bool,bool)->(bool) xor($0,$1)"), {filled(of, dims, 8)}};
  ProgramBuilder b;
  Reg result = b.apply(Opcode::kAdd, b.input(0, accumulator(of)), b.input(1, of));
  if (dims.rank() > 0)
    result = b.apply(Opcode::kSub, result, b.cast(b.index(dims.rank() - 1), result.type));
  return {b.finish(result, of), {filled(of, dims, 8)}};
}

// To another type, and a second result.
Epilogue requantize(const Op& op, DataType of, const Dims& dims) {
  if (of == DataType::kBool) return {parse_program("(bool)->(f32) f32($0)"), {}};
  ProgramBuilder b;
  const Reg acc = b.cast(b.input(0, accumulator(of)), RegisterType::kF32);
  const Reg scaled = b.apply(Opcode::kMul, acc, b.input(1, DataType::kF32));
  const Reg byte = b.saturate(b.apply(Opcode::kRoundEven, scaled), DataType::kI8);
  const std::pair<Reg, DataType> results[] = {{byte, DataType::kI8}, {acc, DataType::kF32}};
  return {b.finish(results), {filled(DataType::kF32, channels(op, dims), 9)}};
}

// The outputs of an op take turns.
struct Epilogues {
  std::string name;
  std::vector<MakeEpilogue> turns;
};
std::vector<Epilogues> epilogues_for(const OpCase& each) {
  std::vector<Epilogues> all = {{"no epilogue", {none}},
                                {"bias_relu", {bias_relu}},
                                {"residual", {residual}},
                                {"residual_index", {residual_index}},
                                {"requantize", {requantize}}};
  const auto* conv = std::get_if<Conv>(&each.op);
  const auto* product = std::get_if<MatMul>(&each.op);
  if ((conv && !conv->split.empty()) || (product && !product->split.empty()))
    all.push_back({"different epilogues", {requantize, none, residual_index}});
  return all;
}

struct BuiltLayer {
  TestLayer layer;
  std::vector<int> constants;
};

BuiltLayer build(const OpCase& each, const std::vector<MakeEpilogue>& turns,
                 const KernelEntry& reference, Device& device) {
  BuiltLayer built{{each.op}, {}};
  TestLayer& layer = built.layer;
  constexpr std::string_view kConstant = "const ";
  for (std::string_view text : each.inputs) {
    if (text.substr(0, kConstant.size()) == kConstant) {
      built.constants.push_back(static_cast<int>(layer.inputs.size()));
      text.remove_prefix(kConstant.size());
    }
    const uint64_t seed = 100 + layer.inputs.size();
    layer.inputs.push_back(text == "-" ? std::nullopt
                                       : std::optional(tensor_from_text(text, seed)));
  }
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  for (const Fact& fact : run_time_facts(layer, reference, device)) {
    const MakeEpilogue make = turns[layer.epilogues.size() % turns.size()];
    Epilogue epilogue = make(each.op, fact.type.dtype, dims_of(fact.type.shape));
    layer.epilogues.push_back(std::move(epilogue.program));
    for (Tensor& input : epilogue.inputs) layer.inputs.emplace_back(std::move(input));
  }
  if (turns == std::vector<MakeEpilogue>{none}) layer.epilogues.clear();
  for (const Fact& fact : run_time_facts(layer, reference, device)) {
    layer.outputs.push_back(fact.type);
    layer.output_dims.push_back(dims_of(fact.type.shape));
  }
  return built;
}

// The same layer, made without knowing the sizes of its first input. Nullopt if its shapes cannot
// be inferred then.
struct Symbolic {
  TestLayer layer;
  std::vector<Type> input_types;
  SizeTable sizes;
};
std::optional<Symbolic> symbolic(const TestLayer& layer) {
  if (layer.inputs.empty() || !layer.inputs[0]) return std::nullopt;
  Symbolic result{layer, own_types(layer), {}};
  Shape& shape = result.input_types[0].shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    shape[axis] = result.sizes.symbol(fmt::format("D{}", axis));
  try {
    result.layer.outputs.clear();
    for (const Fact& fact : infer_with(layer, result.input_types, result.sizes)) {
      Type type = fact.type;
      for (int axis = 0; axis < type.shape.rank(); ++axis)
        if (type.shape[axis].is_unknown()) type.shape[axis] = result.sizes.fresh("unknown");
      result.layer.outputs.push_back(type);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return result;
}

// The inputs of an op, behind its first, that hold indices or sizes.
std::vector<int> integer_inputs(const TestLayer& layer) {
  std::vector<int> found;
  for (int i = 1; i < layer.op_input_count; ++i) {
    const auto& input = layer.inputs[static_cast<size_t>(i)];
    if (input && (input->dtype() == DataType::kI64 || input->dtype() == DataType::kI32))
      found.push_back(i);
  }
  return found;
}

}  // namespace

std::vector<Variants> variants_of(const OpCase& each, Device& cpu, bool constant_integers) {
  const KernelEntry* reference = reference_entry(cpu_backend(), each.op.index());
  check(reference != nullptr, "every op of a case has a reference");
  std::vector<Variants> all;
  for (const auto& [name, turns] : epilogues_for(each)) {
    const std::string& epilogue = name;  // lambdas capture no structured bindings
    BuiltLayer built = build(each, turns, *reference, cpu);
    RunResult wanted = run_layer(*reference, built.layer, cpu);
    if (!wanted.why_not.empty())
      fail(ErrorCode::kInternal,
           fmt::format("{}, {}: the reference refuses: {}", each.name, epilogue, wanted.why_not));
    Variants& variants = all.emplace_back();
    variants.wanted = std::move(wanted.outputs);
    auto unknown = symbolic(built.layer);
    const auto add = [&](const std::string& what, TestLayer layer) -> Variant& {
      return variants.ways.emplace_back(
          Variant{epilogue + what, std::make_unique<TestLayer>(std::move(layer)), nullptr, {}});
    };
    add("", built.layer);
    if (unknown) {
      Variant& way = add(", symbolic sizes", std::move(unknown->layer));
      way.sizes = std::make_unique<SizeTable>(std::move(unknown->sizes));
      way.options.sizes = way.sizes.get();
      way.options.input_types = std::move(unknown->input_types);
      if (constant_integers) way.options.constants = integer_inputs(built.layer);
    }
    if (constant_integers) {
      for (const int i : integer_inputs(built.layer))
        if (std::count(built.constants.begin(), built.constants.end(), i) == 0)
          built.constants.push_back(i);
    }
    if (!built.constants.empty())
      add(", constants", std::move(built.layer)).options.constants = std::move(built.constants);
  }
  return all;
}

std::vector<Placement> placements_of(const TestLayer& layer) {
  bool is_deep =
      std::ranges::any_of(layer.outputs, [](const Type& type) { return type.shape.rank() >= 3; });
  for (const auto& input : layer.inputs) is_deep |= input && input->dims().rank() >= 3;
  std::vector<Placement> placements = {Placement::kRowMajor, Placement::kPadded,
                                       Placement::kReversed};
  if (is_deep) placements.insert(placements.end(), {Placement::kChannelsLast, Placement::kCut});
  return placements;
}

}  // namespace anneal::testing
