#include "anneal/kernels/cpu/reference/reference.h"

#include <fmt/format.h>

#include <array>

#include "anneal/graph/op/infer.h"

namespace anneal::cpu {
namespace {

constexpr size_t kMaxInstructions = 4096;  // what ProgramBuilder allows

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct PreparedReference final : PreparedKernel {
  std::vector<TensorView> results;
  std::vector<size_t> offsets;             // of each result in the workspace
  std::vector<TensorView> program_inputs;  // of the epilogue at hand
  size_t scratch = 0;                      // where it starts in the workspace
};

size_t result_count(const Program& epilogue) {
  return epilogue.empty() ? 1 : epilogue.results().size();
}

size_t further_inputs(const Program& epilogue) {
  return epilogue.inputs().empty() ? 0 : epilogue.inputs().size() - 1;
}

int64_t broadcast_offset(const TensorView& view, const Dims& coordinates) {
  const int missing = coordinates.rank() - view.dims.rank();
  int64_t offset = 0;
  for (int i = 0; i < view.dims.rank(); ++i)
    if (view.dims[i] != 1) offset += coordinates[missing + i] * view.strides[i];
  return offset * static_cast<int64_t>(size_of(view.dtype));
}

// The registers of one element.
class Interpreter {
 public:
  Interpreter(const Program& program, std::span<const TensorView> inputs)
      : code_(program.code()), inputs_(inputs) {
    check(code_.size() <= kMaxInstructions, "a program has at most 4096 instructions");
    for (size_t i = 0; i < code_.size(); ++i)
      if (code_[i].opcode == Opcode::kConstant) registers_[i].bits = code_[i].immediate;
  }

  void run(const Dims& at) {
    for (size_t i = 0; i < code_.size(); ++i) {
      const Instruction& instruction = code_[i];
      switch (instruction.opcode) {
        case Opcode::kConstant:
          break;
        case Opcode::kInput: {
          const TensorView& input = inputs_[instruction.immediate];
          registers_[i] = load_scalar(input.dtype, input.data + broadcast_offset(input, at));
          break;
        }
        case Opcode::kIndex:
          registers_[i] = Scalar::of<int64_t>(at[static_cast<int>(instruction.immediate)]);
          break;
        default:
          registers_[i] = apply(instruction);
      }
    }
  }
  Scalar operator[](size_t reg) const { return registers_[reg]; }

 private:
  Scalar apply(const Instruction& instruction) const {
    const int count = operand_count(instruction.opcode);
    std::array<Scalar, 3> operands;
    std::array<RegisterType, 3> types{};
    for (int k = 0; k < count; ++k) {
      operands[k] = registers_[instruction.operands[k]];
      types[k] = code_[instruction.operands[k]].type;
    }
    return evaluate(instruction, std::span(operands).first(count), std::span(types).first(count));
  }

  std::span<const Instruction> code_;
  std::span<const TensorView> inputs_;
  std::array<Scalar, kMaxInstructions> registers_;
};

}  // namespace

void run_program(const Program& program, const Dims& dims, std::span<const TensorView> inputs,
                 std::span<const TensorView> outputs, ThreadTeam& team) {
  const auto results = program.results();
  team.for_ranges(count(dims), kGrain, [&](int64_t begin, int64_t end) {
    Interpreter interpreter(program, inputs);
    Dims at = coordinates(dims, begin);
    for (int64_t element = begin; element < end; ++element, advance(at, dims)) {
      interpreter.run(at);
      for (size_t r = 0; r < results.size(); ++r) {
        const TensorView out = with_offset(outputs[r], dot(at, outputs[r].strides));
        store_scalar(out.dtype, interpreter[results[r].reg], out.data);
      }
    }
  });
}

std::string epilogue_mismatch(const Request& request) {
  const size_t op_inputs = static_cast<size_t>(request.op_input_count);
  if (op_inputs > request.inputs.size()) return "the layer has fewer inputs than its op";
  size_t input = op_inputs, output = 0;
  for (const Program& epilogue : request.epilogues) {
    if (input + further_inputs(epilogue) > request.inputs.size() ||
        output + result_count(epilogue) > request.outputs.size())
      return "an epilogue wants more inputs or outputs than the layer has";
    for (size_t i = 1; i < epilogue.inputs().size(); ++i, ++input) {
      const Operand& operand = request.inputs[input];
      if (!operand.present) return "an input of an epilogue is absent";
      if (operand.type.dtype != epilogue.inputs()[i])
        return fmt::format("input {} is {}, and its epilogue wants {}", input,
                           to_string(operand.type.dtype), to_string(epilogue.inputs()[i]));
    }
    for (const Program::Result& result : epilogue.results())
      if (request.outputs[output++].type.dtype != result.dtype)
        return fmt::format("output {} is not of the type its epilogue gives", output - 1);
    if (epilogue.empty()) ++output;
  }
  if (!request.epilogues.empty() &&
      (input != request.inputs.size() || output != request.outputs.size()))
    return "the layer has more inputs or outputs than its epilogues use";
  return {};
}

ReferenceKernel::ReferenceKernel(const Request& request)
    : op_inputs_(static_cast<size_t>(request.op_input_count)) {
  for (const Program& epilogue : request.epilogues)
    if (!epilogue.empty()) epilogues_ = {request.epilogues.begin(), request.epilogues.end()};
}

std::unique_ptr<PreparedKernel> ReferenceKernel::prepare(std::span<const TensorView> inputs,
                                                         std::span<const TensorView> outputs,
                                                         int) const {
  auto prepared = std::make_unique<PreparedReference>();
  size_t output = 0, bytes = 0, most_inputs = 0;
  for (const Program& epilogue : epilogues_) {
    TensorView result = outputs[output];
    prepared->offsets.push_back(bytes);
    if (!epilogue.empty()) {
      const auto types = epilogue.inputs();
      result.dtype = types.empty() ? DataType::kF64 : types[0];
      result.strides = row_major_strides(result.dims);
      bytes += aligned(static_cast<size_t>(count(result.dims)) * size_of(result.dtype));
    }
    prepared->results.push_back(result);
    most_inputs = std::max(most_inputs, further_inputs(epilogue) + 1);
    output += result_count(epilogue);
  }
  prepared->program_inputs.resize(most_inputs);
  prepared->scratch = bytes;
  const auto results =
      epilogues_.empty() ? outputs : std::span<const TensorView>(prepared->results);
  prepared->workspace_bytes = bytes + scratch_bytes(inputs.first(op_inputs_), results);
  return prepared;
}

void ReferenceKernel::launch(const LaunchArgs& args) const {
  auto& prepared = static_cast<PreparedReference&>(*args.prepared);
  const auto op_inputs = args.inputs.first(op_inputs_);
  std::byte* scratch = args.workspace + prepared.scratch;
  if (epilogues_.empty()) {
    compute({op_inputs, args.outputs, scratch, args.team, args.found});
    return;
  }
  size_t output = 0;
  for (size_t k = 0; k < epilogues_.size(); ++k) {
    TensorView& result = prepared.results[k];
    if (epilogues_[k].empty()) {
      result = args.outputs[output];
    } else {
      result.data = args.workspace + prepared.offsets[k];
    }
    output += result_count(epilogues_[k]);
  }
  compute({op_inputs, prepared.results, scratch, args.team, args.found});

  size_t input = op_inputs_;
  output = 0;
  for (size_t k = 0; k < epilogues_.size(); ++k) {
    const Program& epilogue = epilogues_[k];
    if (!epilogue.empty()) {
      prepared.program_inputs[0] = prepared.results[k];
      for (size_t i = 0; i < further_inputs(epilogue); ++i)
        prepared.program_inputs[i + 1] = args.inputs[input++];
      run_program(epilogue, prepared.results[k].dims, prepared.program_inputs,
                  args.outputs.subspan(output, epilogue.results().size()), args.team);
    }
    output += result_count(epilogue);
  }
}

}  // namespace anneal::cpu
