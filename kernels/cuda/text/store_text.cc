// The operations of a kernel on its accumulators, as text.
#include <fmt/format.h>

#include "anneal/kernels/cuda/text/program_text.h"
#include "anneal/kernels/cuda/text/store_vector_text.h"

namespace anneal::cuda {
std::string epilogue_mismatch(const Request& request, std::span<const DataType> accumulators) {
  const Program none;
  auto input = static_cast<size_t>(request.op_input_count);
  size_t output = 0;
  if (!request.epilogues.empty() && request.epilogues.size() != accumulators.size())
    return "another number of epilogues than the op has outputs";
  for (size_t k = 0; k < accumulators.size(); ++k) {
    const Program& epilogue = request.epilogues.empty() ? none : request.epilogues[k];
    const size_t results = epilogue.empty() ? 1 : epilogue.results().size();
    if (output + results > request.outputs.size()) return "fewer outputs than results";
    if (epilogue.empty()) {
      const DataType dtype = request.outputs[output++].type.dtype;
      if (register_type(dtype) != register_type(accumulators[k]))
        return fmt::format("{} of accumulators of {}", to_string(dtype),
                           to_string(accumulators[k]));
      continue;
    }
    const auto types = epilogue.inputs();
    if (!types.empty() && types[0] != accumulators[k])
      return fmt::format("an epilogue of {}, where the kernel has {}", to_string(types[0]),
                         to_string(accumulators[k]));
    for (size_t i = 1; i < types.size(); ++i, ++input) {
      if (input >= request.inputs.size() || !request.inputs[input].present ||
          request.inputs[input].type.dtype != types[i] ||
          request.inputs[input].type.shape.rank() > request.outputs[output].type.shape.rank())
        return fmt::format("input {} is not what its epilogue wants", input);
    }
    for (const Program::Result& result : epilogue.results())
      if (request.outputs[output++].type.dtype != result.dtype)
        return fmt::format("output {} is not of the type its epilogue gives", output - 1);
  }
  if (input != request.inputs.size() || output != request.outputs.size())
    return "more inputs or outputs than the op and its epilogues have";
  return {};
}

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

Result<StoreText> StoreText::make(const Request& request, DataType accumulator, Extents& extents,
                                  size_t op_outputs, const StoreLanes* lanes) {
  const std::vector<DataType> accumulators(op_outputs, accumulator);
  if (std::string mismatch = epilogue_mismatch(request, accumulators); !mismatch.empty())
    return refuse(std::move(mismatch));
  StoreText store;
  // Without a program, inputs after the op's own have no reader.
  const bool plain = request.epilogues.empty() || (op_outputs == 1 && request.epilogues[0].empty());
  store.first_input_ = plain ? request.inputs.size() : static_cast<size_t>(request.op_input_count);
  const auto coordinate = [](int axis) { return fmt::format("i{}", axis); };
  std::vector<StorePart> parts(op_outputs);
  int operand = request.op_input_count, output = 0;  // the next of an op output
  for (size_t k = 0; k < op_outputs; ++k) {
    const Program* program =
        plain || request.epilogues[k].empty() ? nullptr : &request.epilogues[k];
    parts[k] = {program, operand, output};
    if (program != nullptr) {
      parts[k].outputs = static_cast<int>(program->results().size());
      operand += static_cast<int>(program->inputs().size()) - 1;
    }
    output += parts[k].outputs;
  }
  const auto statements_of = [&](const StorePart& part) {
    const Operand& first = request.outputs[static_cast<size_t>(part.first_output)];
    const auto place = [&](bool is_output, int index) {
      return offset_text(request, extents, {is_output, index}, first.type.shape, coordinate);
    };
    std::string statements;
    std::vector<std::string> results;
    if (part.program == nullptr) {
      results = {stored(first.type.dtype, "a")};
    } else {
      const auto input = [&](int i) {
        if (i == 0) return std::string("a");
        const int at = part.first_input + i - 1;
        return loaded(request.inputs[static_cast<size_t>(at)].type.dtype,
                      fmt::format("e{}[{}]", at, place(false, at)));
      };
      ProgramText text = stores_of(*part.program, input, coordinate);
      statements = std::move(text.statements);
      results = std::move(text.results);
    }
    for (int i = 0; i < part.outputs; ++i) {
      const int at = part.first_output + i;
      statements +=
          fmt::format("y{}[{}] = {};\n", at, place(true, at), results[static_cast<size_t>(i)]);
    }
    return statements;
  };
  std::string statements;
  for (size_t k = 0; k < op_outputs; ++k) {
    if (op_outputs == 1) {
      statements = statements_of(parts[k]);
    } else {
      statements += fmt::format("{}if (part == {}) {{\n{}}}", k == 0 ? "" : " else ", k,
                                statements_of(parts[k]));
    }
  }
  std::string members;
  if (lanes != nullptr) {
    StoreVectorText vectors =
        store_vector_text(request, extents, *lanes, parts, register_type(accumulator));
    members = std::move(vectors.members);
    store.vectors_ = std::move(vectors.vectors);
  }

  std::string fields, names;
  const auto declare = [&](const char* memory, char letter, int index, DataType dtype) {
    const std::string declared =
        fmt::format("{}<{}> {}{}", memory, type_text(dtype), letter, index);
    store.parameters_ += ", " + declared;
    fields += declared + "; ";
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", letter, index);
  };
  for (int i = request.op_input_count; i < static_cast<int>(request.inputs.size()); ++i)
    declare("In", 'e', i, request.inputs[static_cast<size_t>(i)].type.dtype);
  for (int i = 0; i < static_cast<int>(request.outputs.size()); ++i)
    declare("Out", 'y', i, request.outputs[static_cast<size_t>(i)].type.dtype);
  std::string coordinates;
  for (int axis = 0; axis < request.outputs[0].type.shape.rank(); ++axis)
    coordinates += fmt::format(", i64 i{}", axis);
  for (size_t i = 0; i < extents.sources().size(); ++i) fields += fmt::format("i64 v{}; ", i);
  if (op_outputs > 1) fields += "i32 part; ";
  store.definition_ =
      fmt::format("struct Store {{\n{}\n__device__ void operator()({} a{}) const {{\n{}}}\n{}}};\n",
                  fields, type_text(register_type(accumulator)), coordinates, statements, members);
  store.construction_ =
      fmt::format("Store{{{}{}{}}}", names, extents.names(), op_outputs > 1 ? ", part" : "");
  return store;
}

}  // namespace anneal::cuda
