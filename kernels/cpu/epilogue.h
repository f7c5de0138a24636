// The epilogue of a layer with one op output, applied by its kernel to blocks of accumulators.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "anneal/kernels/cpu/tape_space.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

class Epilogue {
 public:
  // nullopt, with a reason, if it does not take accumulators of this type (f32, i32) or cannot be
  // made into a tape. Without a program it rounds to the type of the output.
  static std::optional<Epilogue> make(const Request& request, DataType accumulators,
                                      std::string& why_not);

  // Whether accumulators are the output as they are.
  bool is_copy() const { return is_copy_; }
  size_t scratch_bytes() const { return tape_.scratch_bytes(); }
  // Rows and columns of blocks are axes of the outputs.
  TapeSpace space(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                  const TapeSpace::Axes& axes) const {
    return TapeSpace::of_accumulators(tape_, inputs.subspan(op_inputs_), outputs, axes);
  }
  // The same of [N, C, spatial axes]: rows are pixels, columns channels.
  TapeSpace pixel_space(std::span<const TensorView> inputs,
                        std::span<const TensorView> outputs) const {
    return space(inputs, outputs, TapeSpace::Axes::of_pixels(outputs[0].dims.rank()));
  }
  void run(const TapeSpace& space, const LaunchArgs& args, const void* accumulators,
           int64_t accumulator_stride, int64_t row, int64_t rows, int64_t column, int64_t columns,
           std::byte* scratch) const;

 private:
  Epilogue(Tape tape, bool is_copy, const Request& request);
  Tape tape_;
  bool is_copy_;
  size_t op_inputs_;
  RunTape run_tape_;
};

}  // namespace anneal::cpu
