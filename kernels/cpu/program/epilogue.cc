#include "anneal/kernels/cpu/program/epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "anneal/core/dtype_kinds.h"
#include "anneal/kernels/cpu/base/device.h"
#include "anneal/kernels/cpu/reference/reference.h"

namespace anneal::cpu {
namespace {

// Takes the steps of a vector program one after the other.
class StepReader {
 public:
  explicit StepReader(std::span<const VectorStep> steps) : steps_(steps) {}
  bool at_end() const { return steps_.empty(); }
  // The next one if it is this one; null, and nothing is taken, if not.
  const VectorStep* take(VectorOp op, VectorOperand operand = VectorOperand::kOther,
                         bool to_b = false) {
    if (steps_.empty()) return nullptr;
    const VectorStep& step = steps_[0];
    const bool is_it = step.op == op && step.operand == operand && step.to_b == to_b;
    if (!is_it || (operand == VectorOperand::kConstant && std::isnan(step.constant)))
      return nullptr;
    steps_ = steps_.subspan(1);
    return &step;
  }

 private:
  std::span<const VectorStep> steps_;
};

// Without regard to which operands are the sums themselves.
std::optional<RegisterEpilogueForm> form_of_steps(const Tape& tape) {
  using enum VectorOperand;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (tape.vector_programs().size() != 1 || tape.table() != nullptr) return std::nullopt;
  const VectorProgram& chain = tape.vector_programs()[0];
  RegisterEpilogueForm form{.storage = chain.result(), .low = -kInfinity, .high = kInfinity};
  StepReader steps(chain.steps());
  const VectorStep* const sum = steps.take(VectorOp::kLoad);
  if (sum == nullptr || sum->port != 0) return std::nullopt;
  if (const auto* scale = steps.take(VectorOp::kMul, kPort)) form.scale = scale->port;
  if (const auto* offset = steps.take(VectorOp::kAdd, kPort)) form.offset = offset->port;
  const auto take_limits = [&] {
    if (const auto* low = steps.take(VectorOp::kMax, kConstant)) form.low = low->constant;
    if (const auto* high = steps.take(VectorOp::kMin, kConstant)) form.high = high->constant;
  };
  if (const auto& to = chain.quantize()) {
    take_limits();
    if (const auto* factor = steps.take(VectorOp::kMul, kConstant)) form.factor = factor->constant;
    // Limits before the multiplication are limits of products, whose rounding keeps their order.
    form.low = std::max(form.low * form.factor, to->low);
    form.high = std::min(form.high * form.factor, to->high);
    form.zero = to->zero;
    const bool is_one = steps.at_end() && form.factor > 0 && form.low <= form.high;
    return is_one ? std::optional(form) : std::nullopt;
  }
  if (form.storage == DataType::kF32) {
    if (const auto* addend = steps.take(VectorOp::kAdd, kPort)) form.addend = addend->port;
  } else if (const auto* addend = steps.take(VectorOp::kLoad, kOther, true)) {
    if (addend->storage != form.storage || steps.take(VectorOp::kAdd) == nullptr)
      return std::nullopt;
    form.addend = addend->port;
  }
  take_limits();
  if (form.storage == DataType::kBF16 && steps.take(VectorOp::kRoundBf16) == nullptr)
    return std::nullopt;
  return steps.at_end() ? std::optional(form) : std::nullopt;
}

// Scale, offset and addend are read from memory, so none may be the sums, port 0: a square is no
// such form.
std::optional<RegisterEpilogueForm> register_epilogue_form(const Tape& tape) {
  const auto form = form_of_steps(tape);
  if (!form || form->scale == 0 || form->offset == 0 || form->addend == 0) return std::nullopt;
  return form;
}

// Whether it may have other elements for other rows.
bool has_rows(const Operand& input) {
  const Shape& shape = input.type.shape;
  return std::count_if(shape.begin(), shape.end(),
                       [](Size size) { return !size.known() || size.value() != 1; }) > 1;
}

bool is_finite(const Operand& input) {
  if (input.constant == nullptr || input.type.dtype != DataType::kF32) return false;
  const auto values = input.constant->as<const float>();
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

Result<Epilogue> Epilogue::make(const Request& request, const Program* program,
                                DataType accumulators, size_t& input, size_t& output) {
  const DataType stored = request.outputs[output].type.dtype;
  ProgramBuilder builder;
  Program plain;
  if (program == nullptr || program->empty()) {
    plain = builder.finish(builder.input(0, accumulators), stored);
    program = &plain;
  } else if (program->inputs().empty() || program->inputs()[0] != accumulators) {
    return refuse("an epilogue that does not take the accumulators");
  }
  auto tape = Tape::compile(*program);
  if (!tape) return refuse(tape.reason());
  Epilogue made(std::move(*tape), program->is_identity(), run_tape(isa_of(request.device)));
  made.first_input_ = input;
  made.input_count_ = program->inputs().size() - 1;
  made.first_output_ = output;
  made.output_count_ = program->results().size();
  made.form_ = register_epilogue_form(made.tape_);
  const auto input_of = [&](int port) -> const Operand& {
    return request.inputs[input + static_cast<size_t>(port) - 1];
  };
  if (made.form_ && made.form_->storage == DataType::kF32 && made.form_->addend < 0 &&
      made.form_->offset >= 0 && has_rows(input_of(made.form_->offset)))
    made.form_->addend = std::exchange(made.form_->offset, -1);
  if (made.form_ && is_8bit(made.form_->storage)) {
    // A register epilogue turns NaN into the lower limit, whatever the vector program does.
    const auto is_number = [&](int port) { return port < 0 || is_finite(input_of(port)); };
    const bool are_numbers = is_number(made.form_->scale) && is_number(made.form_->offset) &&
                             std::isfinite(made.form_->factor);
    if (!are_numbers) made.form_.reset();
  }
  input += made.input_count_;
  output += made.output_count_;
  return made;
}

Result<Epilogue> Epilogue::make(const Request& request, DataType accumulators) {
  auto made = Epilogues::make(request, accumulators, 1);
  if (!made) return refuse(made.reason());
  return std::move(made->all_[0]);
}

Result<Epilogues> Epilogues::make(const Request& request, DataType accumulators,
                                  size_t op_outputs) {
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  const bool plain = request.epilogues.empty();
  if (plain ? request.outputs.size() != op_outputs : request.epilogues.size() != op_outputs)
    return refuse("more op outputs than the kernel has");
  Epilogues made;
  auto input = static_cast<size_t>(request.op_input_count);
  size_t output = 0;
  for (size_t i = 0; i < op_outputs; ++i) {
    auto one = Epilogue::make(request, plain ? nullptr : &request.epilogues[i], accumulators, input,
                              output);
    if (!one) return refuse(one.reason());
    made.all_.push_back(std::move(*one));
  }
  return made;
}

void Epilogue::run(const TapeSpace& space, const LaunchArgs& args, const Accumulators& accumulators,
                   const BlockRange& block, std::byte* scratch) const {
  const TapeSpace::Operands operands{args.inputs.subspan(first_input_, input_count_),
                                     args.outputs.subspan(first_output_, output_count_),
                                     accumulators};
  space.run(run_tape_, tape_, operands, block, scratch);
}

std::optional<RegisterEpilogue> Epilogue::finish(CanStore finishes, const TapeSpace& space,
                                                 const LaunchArgs& args, int64_t row,
                                                 int64_t column) const {
  if (!form_ || !finishes(form_->storage) || !space.has_even_rows()) return std::nullopt;
  RegisterEpilogue finish{.storage = form_->storage,
                          .low = form_->low,
                          .high = form_->high,
                          .factor = form_->factor,
                          .zero = form_->zero};
  const auto size = static_cast<int64_t>(size_of(form_->storage));
  const auto per_column = [&](int port, const float*& to) {
    if (port < 0) return true;
    const auto operand = static_cast<size_t>(port) - 1;
    const TapeSpace::Place place = space.place(operand, row, column);
    to = reinterpret_cast<const float*>(args.inputs[first_input_ + operand].data + place.offset);
    return place.row_stride == 0 && place.column_stride == static_cast<int64_t>(sizeof(float));
  };
  if (!per_column(form_->scale, finish.scale) || !per_column(form_->offset, finish.offset))
    return std::nullopt;
  if (form_->addend >= 0) {
    const auto operand = static_cast<size_t>(form_->addend) - 1;
    const TapeSpace::Place place = space.place(operand, row, column);
    if (place.column_stride != size) return std::nullopt;
    finish.addend = args.inputs[first_input_ + operand].data + place.offset;
    finish.addend_stride = place.row_stride;
  }
  const TapeSpace::Place place = space.place(input_count_, row, column);
  if (place.column_stride != size) return std::nullopt;
  finish.y = args.outputs[first_output_].data + place.offset;
  finish.y_stride = place.row_stride;
  return finish;
}

const RegisterEpilogueForm* Epilogue::dense_form(const TapeSpace& space) const {
  if (!form_ || !space.has_even_rows()) return nullptr;
  const auto lies = [&](size_t operand, int64_t row_stride, size_t column_stride) {
    const TapeSpace::Place place = space.place(operand, 0, 0);
    return (space.rows() == 1 || place.row_stride == row_stride) &&
           (space.columns() == 1 || place.column_stride == static_cast<int64_t>(column_stride));
  };
  const auto is_per_column = [&](int port) {
    return port < 0 || lies(static_cast<size_t>(port) - 1, 0, sizeof(float));
  };
  const size_t size = size_of(form_->storage);
  const int64_t row = space.columns() * static_cast<int64_t>(size);
  const bool is_dense =
      is_per_column(form_->scale) && is_per_column(form_->offset) &&
      (form_->addend < 0 || lies(static_cast<size_t>(form_->addend) - 1, row, size)) &&
      lies(input_count_, row, size);
  return is_dense ? &*form_ : nullptr;
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

void Epilogues::run(const Spaces& spaces, const LaunchArgs& args, const Accumulators& accumulators,
                    const BlockRange& block, std::byte* scratch) const {
  const auto* const first = static_cast<const std::byte*>(accumulators.data);
  int64_t begin = 0;  // of an output's columns
  for (size_t i = 0; i < all_.size(); ++i) {
    const int64_t end = begin + spaces[i].columns();
    const int64_t from = std::max(block.column, begin);
    const int64_t to = std::min(block.column + block.columns, end);
    const auto size = static_cast<int64_t>(size_of(all_[i].tape_.input_types()[0]));
    if (from < to)
      all_[i].run(spaces[i], args, {first + (from - block.column) * size, accumulators.stride},
                  {block.row, block.rows, from - begin, to - from}, scratch);
    begin = end;
  }
}

std::optional<RegisterEpilogue> Epilogues::finish(CanStore finishes, const Spaces& spaces,
                                                  const LaunchArgs& args, int64_t row,
                                                  int64_t column, int64_t columns) const {
  int64_t begin = 0;  // of an output's columns
  for (size_t i = 0; i < all_.size(); ++i) {
    const int64_t end = begin + spaces[i].columns();
    if (column >= begin && column + columns <= end)
      return all_[i].finish(finishes, spaces[i], args, row, column - begin);
    begin = end;
  }
  return std::nullopt;
}

}  // namespace anneal::cpu
