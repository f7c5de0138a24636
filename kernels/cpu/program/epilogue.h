// The epilogues of a layer, applied by its kernel to blocks of accumulators.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/core/result.h"
#include "anneal/kernels/cpu/program/register_epilogue.h"
#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// An epilogue that can be a RegisterEpilogue. Scale, offset and addend are inputs of its program;
// -1: there is none.
struct RegisterEpilogueForm {
  DataType storage = DataType::kF32;
  int scale = -1, offset = -1, addend = -1;
  float low = 0, high = 0, factor = 1;
  int32_t zero = 0;
};

// The epilogue of one op output.
class Epilogue {
 public:
  // Of the only one. Refuses if it does not take accumulators of this type (f32, i32) or cannot be
  // made into a tape. Without a program it rounds to the type of the output.
  static Result<Epilogue> make(const Request& request, DataType accumulators);

  // Whether the accumulators are the output without change.
  bool is_copy() const { return is_copy_; }
  size_t scratch_bytes() const { return tape_.scratch_bytes(); }
  // Rows and columns of blocks are axes of the outputs.
  TapeSpace space(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                  const TapeSpace::Axes& axes) const {
    return TapeSpace::of_accumulators(tape_, inputs.subspan(first_input_, input_count_),
                                      outputs.subspan(first_output_, output_count_), axes);
  }
  // The space of [N, C, spatial axes]: rows are pixels, columns channels.
  TapeSpace pixel_space(std::span<const TensorView> inputs,
                        std::span<const TensorView> outputs) const {
    return space(inputs, outputs, TapeSpace::Axes::of_pixels(outputs[0].dims.rank()));
  }
  void run(const TapeSpace& space, const LaunchArgs& args, const Accumulators& accumulators,
           const BlockRange& block, std::byte* scratch) const;
  // The same as run() for a block that begins at [row, column], whose kernel does it; nullopt: it
  // cannot.
  std::optional<RegisterEpilogue> finish(CanStore finishes, const TapeSpace& space,
                                         const LaunchArgs& args, int64_t row, int64_t column) const;

  // As Epilogues::dense_form().
  const RegisterEpilogueForm* dense_form(const TapeSpace& space) const;

 private:
  friend class Epilogues;
  Epilogue(Tape tape, bool is_copy, RunTape run_tape)
      : tape_(std::move(tape)), is_copy_(is_copy), run_tape_(run_tape) {}
  // For an op output whose further inputs and outputs are those of the layer from these positions
  // on, which are advanced past them.
  static Result<Epilogue> make(const Request& request, const Program* program,
                               DataType accumulators, size_t& input, size_t& output);
  Tape tape_;
  bool is_copy_;
  size_t first_input_ = 0, input_count_ = 0, first_output_ = 0, output_count_ = 0;
  RunTape run_tape_;
  std::optional<RegisterEpilogueForm> form_;
};

// The epilogues of op outputs that share the columns of the accumulators.
class Epilogues {
 public:
  // As Epilogue::make().
  static Result<Epilogues> make(const Request& request, DataType accumulators, size_t op_outputs);
  Epilogues(Epilogue only) { all_.push_back(std::move(only)); }

  // Whether the accumulators are the only output without change; and whether they are several
  // outputs without change.
  bool is_copy() const { return all_.size() == 1 && are_copies(); }
  bool are_copies() const {
    return std::all_of(all_.begin(), all_.end(), [](const Epilogue& e) { return e.is_copy(); });
  }
  size_t scratch_bytes() const;
  // One space for each op output.
  using Spaces = std::vector<TapeSpace>;
  Spaces spaces(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                const TapeSpace::Axes& axes) const;
  Spaces pixel_spaces(std::span<const TensorView> inputs,
                      std::span<const TensorView> outputs) const {
    return spaces(inputs, outputs, TapeSpace::Axes::of_pixels(outputs[0].dims.rank()));
  }
  // Columns are counted through all outputs.
  void run(const Spaces& spaces, const LaunchArgs& args, const Accumulators& accumulators,
           const BlockRange& block, std::byte* scratch) const;
  // Whether finish() can be of views as kernels like them.
  bool can_run_in_registers(CanStore finishes) const {
    return std::all_of(all_.begin(), all_.end(),
                       [&](const Epilogue& e) { return e.form_ && finishes(e.form_->storage); });
  }
  // As Epilogue::finish(), for `columns` columns.
  std::optional<RegisterEpilogue> finish(CanStore finishes, const Spaces& spaces,
                                         const LaunchArgs& args, int64_t row, int64_t column,
                                         int64_t columns) const;
  // The form of the only epilogue, if it can be a RegisterEpilogue of dense rows: the rows of the
  // output, and of an addend, are contiguous in `spaces`. Null: there are several epilogues, or it
  // cannot.
  const RegisterEpilogueForm* dense_form(const Spaces& spaces) const {
    return all_.size() == 1 ? all_[0].dense_form(spaces[0]) : nullptr;
  }

 private:
  friend class Epilogue;
  Epilogues() = default;
  std::vector<Epilogue> all_;
};

}  // namespace anneal::cpu
