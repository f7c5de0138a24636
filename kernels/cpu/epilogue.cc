#include "anneal/kernels/cpu/epilogue.h"

#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/reference.h"

namespace anneal::cpu {

Epilogue::Epilogue(Tape tape, bool is_copy, const Request& request)
    : tape_(std::move(tape)),
      is_copy_(is_copy),
      op_inputs_(static_cast<size_t>(request.op_input_count)),
      run_tape_(run_tape(isa_of(request.device))) {}

std::optional<Epilogue> Epilogue::make(const Request& request, DataType accumulators,
                                       std::string& why_not) {
  why_not = epilogue_mismatch(request);
  if (!why_not.empty()) return std::nullopt;
  if (request.epilogues.size() > 1) {
    why_not = "several op outputs";
    return std::nullopt;
  }
  if (!request.epilogues.empty() && !request.epilogues[0].empty()) {
    const Program& program = request.epilogues[0];
    if (program.inputs().empty() || program.inputs()[0] != accumulators) {
      why_not = "an epilogue that does not take the accumulators";
      return std::nullopt;
    }
    auto tape = Tape::compile(program, why_not);
    if (!tape) return std::nullopt;
    return Epilogue(std::move(*tape), program.is_identity(), request);
  }
  if (request.outputs.size() != 1) {
    why_not = "several outputs";
    return std::nullopt;
  }
  ProgramBuilder builder;
  const DataType stored = request.outputs[0].type.dtype;
  const Program program = builder.finish(builder.input(0, accumulators), stored);
  auto tape = Tape::compile(program, why_not);
  if (!tape) return std::nullopt;
  return Epilogue(std::move(*tape), stored == accumulators, request);
}

void Epilogue::run(const TapeSpace& space, const LaunchArgs& args, const void* accumulators,
                   int64_t accumulator_stride, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, std::byte* scratch) const {
  const TapeSpace::Operands operands{args.inputs.subspan(op_inputs_), args.outputs,
                                     static_cast<const std::byte*>(accumulators),
                                     accumulator_stride};
  space.run(run_tape_, tape_, operands, row, row + rows, column, column + columns, scratch);
}

}  // namespace anneal::cpu
