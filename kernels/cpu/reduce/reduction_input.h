// The map of a Softmax or Reduce: a tape computes the reduced elements block by block.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cpu/reduce/reduction_blocks.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

class ReductionInput {
 public:
  // further: which input of the layer is the map's second one. Refuses results that are not reduced
  // in f32.
  static Result<ReductionInput> make(const Program& map, int further, const Request& request);

  // For one shape.
  struct Space {
    std::vector<TensorView> inputs;  // of the map
    TensorView whole;                // the dims of the folded tensor, as its largest input has it
    TapeSpace blocks;
    int64_t pitch = 1;  // of a block's rows
  };
  // With everything but data.
  Space space(std::span<const TensorView> inputs, const ReductionSpace::Axes& folded) const;
  void aim(Space& space, std::span<const TensorView> inputs) const;
  size_t scratch_bytes() const { return tape_.scratch_bytes(); }
  // Rows and columns as ReductionSpace numbers them, to memory whose rows are space.pitch apart.
  void run(const Space& space, const BlockRange& block, float* to, std::byte* scratch) const;

  // body(source) with a source of the map's results, in place of `plain`, which reads an input.
  template <class Body>
  void with_source(const Space& space, const ReductionSpace::Source& plain, std::byte* scratch,
                   const Body& body) const {
    const auto make = [&](int64_t row, int64_t rows, int64_t column, int64_t columns, float* to) {
      run(space, {row, rows, column, columns}, to, scratch);
    };
    const ReductionSpace::Make maker(make);
    body(ReductionSpace::Source{space.whole, plain.load, plain.buffer, &maker});
  }

 private:
  ReductionInput(Tape tape, int further, const Request& request);
  Tape tape_;
  size_t further_, op_inputs_;
  RunTape run_tape_;
};

}  // namespace anneal::cpu
