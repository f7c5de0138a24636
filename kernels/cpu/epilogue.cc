#include "anneal/kernels/cpu/epilogue.h"

#include <algorithm>

#include "anneal/kernels/cpu/device.h"
#include "anneal/kernels/cpu/reference.h"

namespace anneal::cpu {

std::optional<Epilogue> Epilogue::make(const Request& request, const Program* program,
                                       DataType accumulators, size_t& input, size_t& output,
                                       std::string& why_not) {
  const DataType stored = request.outputs[output].type.dtype;
  ProgramBuilder builder;
  Program plain;
  if (program == nullptr || program->empty()) {
    plain = builder.finish(builder.input(0, accumulators), stored);
    program = &plain;
  } else if (program->inputs().empty() || program->inputs()[0] != accumulators) {
    why_not = "an epilogue that does not take the accumulators";
    return std::nullopt;
  }
  auto tape = Tape::compile(*program, why_not);
  if (!tape) return std::nullopt;
  Epilogue made(std::move(*tape), program->is_identity(), run_tape(isa_of(request.device)));
  made.first_input_ = input;
  made.input_count_ = program->inputs().size() - 1;
  made.first_output_ = output;
  made.output_count_ = program->results().size();
  input += made.input_count_;
  output += made.output_count_;
  return made;
}

std::optional<Epilogue> Epilogue::make(const Request& request, DataType accumulators,
                                       std::string& why_not) {
  auto made = Epilogues::make(request, accumulators, 1, why_not);
  return made ? std::optional(std::move(made->all_[0])) : std::nullopt;
}

std::optional<Epilogues> Epilogues::make(const Request& request, DataType accumulators,
                                         size_t op_outputs, std::string& why_not) {
  why_not = epilogue_mismatch(request);
  if (!why_not.empty()) return std::nullopt;
  const bool plain = request.epilogues.empty();
  if (plain ? request.outputs.size() != op_outputs : request.epilogues.size() != op_outputs) {
    why_not = "more op outputs than the kernel has";
    return std::nullopt;
  }
  Epilogues made;
  auto input = static_cast<size_t>(request.op_input_count);
  size_t output = 0;
  for (size_t i = 0; i < op_outputs; ++i) {
    auto one = Epilogue::make(request, plain ? nullptr : &request.epilogues[i], accumulators, input,
                              output, why_not);
    if (!one) return std::nullopt;
    made.all_.push_back(std::move(*one));
  }
  return made;
}

void Epilogue::run(const TapeSpace& space, const LaunchArgs& args, const void* accumulators,
                   int64_t accumulator_stride, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, std::byte* scratch) const {
  const TapeSpace::Operands operands{args.inputs.subspan(first_input_, input_count_),
                                     args.outputs.subspan(first_output_, output_count_),
                                     static_cast<const std::byte*>(accumulators),
                                     accumulator_stride};
  space.run(run_tape_, tape_, operands, row, row + rows, column, column + columns, scratch);
}

size_t Epilogues::scratch_bytes() const {
  size_t most = 0;
  for (const Epilogue& each : all_) most = std::max(most, each.scratch_bytes());
  return most;
}

Epilogues::Spaces Epilogues::spaces(std::span<const TensorView> inputs,
                                    std::span<const TensorView> outputs,
                                    const TapeSpace::Axes& axes) const {
  Spaces spaces;
  for (const Epilogue& each : all_) spaces.push_back(each.space(inputs, outputs, axes));
  return spaces;
}

void Epilogues::run(const Spaces& spaces, const LaunchArgs& args, const std::byte* accumulators,
                    int64_t accumulator_stride, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, std::byte* scratch) const {
  int64_t begin = 0;  // of an output's columns
  for (size_t i = 0; i < all_.size(); ++i) {
    const int64_t end = begin + spaces[i].columns();
    const int64_t from = std::max(column, begin), to = std::min(column + columns, end);
    const auto size = static_cast<int64_t>(size_of(all_[i].tape_.input_types()[0]));
    if (from < to)
      all_[i].run(spaces[i], args, accumulators + (from - column) * size, accumulator_stride, row,
                  rows, from - begin, to - from, scratch);
    begin = end;
  }
}

}  // namespace anneal::cpu
