// What a kernel does with its accumulators, as text.
#include <fmt/format.h>

#include "anneal/kernels/cuda/program_text.h"

namespace anneal::cuda {
namespace {

// Why the epilogue does not fit the request; empty if it does.
std::string mismatch(const Request& request, const Program& epilogue, DataType accumulator) {
  const auto op_inputs = static_cast<size_t>(request.op_input_count);
  const auto types = epilogue.inputs();
  const size_t further = types.empty() ? 0 : types.size() - 1;
  if (op_inputs + further != request.inputs.size() ||
      epilogue.results().size() != request.outputs.size())
    return "the layer has other inputs or outputs than its epilogue uses";
  if (!types.empty() && types[0] != accumulator)
    return fmt::format("an epilogue of {}, where the kernel has {}", name(types[0]),
                       name(accumulator));
  for (size_t i = 0; i < further; ++i) {
    const Operand& operand = request.inputs[op_inputs + i];
    if (!operand.present || operand.type.dtype != types[i + 1])
      return fmt::format("input {} is not what its epilogue wants", op_inputs + i);
    if (operand.type.shape.rank() > request.outputs[0].type.shape.rank())
      return fmt::format("input {} does not broadcast to the output", op_inputs + i);
  }
  for (size_t i = 0; i < request.outputs.size(); ++i)
    if (request.outputs[i].type.dtype != epilogue.results()[i].dtype)
      return fmt::format("output {} is not of the type its epilogue gives", i);
  return {};
}

}  // namespace

std::string offset_text(const Request& request, Extents& extents, OperandAt at, const Shape& space,
                        const std::function<std::string(int)>& coordinate) {
  const auto& operands = at.output ? request.outputs : request.inputs;
  const Operand& operand = operands[static_cast<size_t>(at.index)];
  const Shape& shape = operand.type.shape;
  const int missing = space.rank() - shape.rank();
  std::string sum;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Size size = shape[axis], stride = operand.strides[axis];
    if (size == Size(1) || stride == Size(0)) continue;
    std::string term = coordinate(missing + axis);
    const bool broadcasts = !size.known() && !(size == space[missing + axis]);
    if (broadcasts)
      term = fmt::format("({} == 1 ? 0 : {})", extents.dim(at.output, at.index, axis), term);
    if (!(stride == Size(1))) term += " * " + extents.stride(at.output, at.index, axis);
    if (!sum.empty()) sum += " + ";
    sum += term;
  }
  return sum.empty() ? "0" : sum;
}

std::optional<StoreText> StoreText::make(const Request& request, DataType accumulator,
                                         Extents& extents, std::string& why_not) {
  if (request.epilogues.size() > 1) {
    why_not = "several outputs of the op";
    return std::nullopt;
  }
  const RegisterType type = register_type(accumulator);
  const bool plain = request.epilogues.empty() || request.epilogues[0].empty();
  if (!plain) {
    why_not = mismatch(request, request.epilogues[0], accumulator);
  } else if (request.outputs.size() != 1) {
    why_not = "several outputs";
  } else if (register_type(request.outputs[0].type.dtype) != type) {
    why_not = fmt::format("{} of accumulators of {}", name(request.outputs[0].type.dtype),
                          name(accumulator));
  }
  if (!why_not.empty()) return std::nullopt;

  StoreText store;
  // Without a program, inputs behind the op's are nobody's.
  store.first_input_ = plain ? request.inputs.size() : static_cast<size_t>(request.op_input_count);
  const Shape& shape = request.outputs[0].type.shape;
  const auto coordinate = [](int axis) { return fmt::format("i{}", axis); };
  const auto place = [&](bool output, int index) {
    return offset_text(request, extents, {output, index}, shape, coordinate);
  };
  std::string statements;
  std::vector<std::string> results;
  if (plain) {
    results = {stored(request.outputs[0].type.dtype, "a")};
  } else {
    const auto input = [&](int i) {
      if (i == 0) return std::string("a");
      const int operand = request.op_input_count + i - 1;
      return loaded(request.inputs[static_cast<size_t>(operand)].type.dtype,
                    fmt::format("e{}[{}]", operand, place(false, operand)));
    };
    ProgramText program = text_of(request.epilogues[0], input, coordinate);
    statements = std::move(program.statements);
    results = std::move(program.results);
  }
  std::string fields, names;
  const auto declare = [&](const char* memory, char letter, int index, DataType dtype) {
    const std::string declared =
        fmt::format("{}<{}> {}{}", memory, type_text(dtype), letter, index);
    store.parameters_ += ", " + declared;
    fields += declared + "; ";
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", letter, index);
  };
  if (!plain)
    for (int i = request.op_input_count; i < static_cast<int>(request.inputs.size()); ++i)
      declare("In", 'e', i, request.inputs[static_cast<size_t>(i)].type.dtype);
  for (int i = 0; i < static_cast<int>(request.outputs.size()); ++i) {
    statements +=
        fmt::format("y{}[{}] = {};\n", i, place(true, i), results[static_cast<size_t>(i)]);
    declare("Out", 'y', i, request.outputs[static_cast<size_t>(i)].type.dtype);
  }
  std::string coordinates;
  for (int axis = 0; axis < shape.rank(); ++axis) coordinates += fmt::format(", i64 i{}", axis);
  for (size_t i = 0; i < extents.sources().size(); ++i) fields += fmt::format("i64 v{}; ", i);
  store.definition_ =
      fmt::format("struct Store {{\n{}\n__device__ void operator()({} a{}) const {{\n{}}}\n}};\n",
                  fields, type_text(type), coordinates, statements);
  store.construction_ = fmt::format("Store{{{}{}}}", names, extents.names());
  return store;
}

void StoreText::add_arguments(Arguments& arguments, std::span<const TensorView> inputs,
                              std::span<const TensorView> outputs) const {
  for (const TensorView& input : inputs.subspan(first_input_)) arguments.add(input);
  for (const TensorView& output : outputs) arguments.add(output);
}

}  // namespace anneal::cuda
