// A kernel that runs one tape over the elements of its outputs: Pointwise, and ops that equal a
// program on views of their inputs.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "anneal/kernels/cpu/program/tape_space.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

class TapeKernel : public Kernel {
 public:
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override;
  void launch(const LaunchArgs& args) const override;

 protected:
  TapeKernel(Tape tape, Isa isa) : tape_(std::move(tape)), run_tape_(run_tape(isa)) {}
  // The layer's inputs as those of the tape. Data is null in prepare(). Allocates nothing but
  // through seen.push_back(), which has room in launch().
  virtual void see(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                   std::vector<TensorView>& seen) const = 0;
  // The outputs of the layer.
  virtual void see_results(std::span<const TensorView> outputs,
                           std::vector<TensorView>& seen) const {
    seen.insert(seen.end(), outputs.begin(), outputs.end());
  }

 private:
  Tape tape_;
  RunTape run_tape_;
};

// Adds what the layer's one epilogue does to a value of its op: the registers of its results, or
// the value rounded to the output's type. `next` is the number of the program's next input.
Program with_epilogue(ProgramBuilder& builder, Reg value, const Request& request, int next);

}  // namespace anneal::cpu
