// A request as a kernel's text sees it: of some of the inputs, through permuted, sliced or merged
// axes. The same mappings turn the views of a launch into those of the text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

// One tensor through other axes.
struct AxisMapping {
  struct Axis {
    PerAxis<int> of = {};  // axes of the tensor, merged, outermost first
    bool sliced = false;   // a lone axis from `start` in steps, as in Slice, to the output's size
    int64_t start = 0, step = 1;
  };
  std::vector<Axis> axes = {};
  bool dense = false;  // elements behind each other, counted along other axes

  static AxisMapping all(int rank);
  // other: the sizes of dense and of sliced axes. A view's data is moved if it is there.
  Operand operator()(const Operand& operand, const Shape& other, SizeTable& sizes) const;
  TensorView operator()(const TensorView& view, const Dims& other) const;
};

// The contents of a constant of i32 or i64; nullopt: it is something else.
std::optional<std::vector<int64_t>> integers(const Operand& operand);
bool has_epilogue(const Request& request);  // of the op's only output

class OperandViews {
 public:
  // The views of these inputs of the request, which stay in order: the op's own, then an
  // epilogue's.
  OperandViews(const Request& request, std::vector<int> op_inputs);
  // The views of all inputs.
  explicit OperandViews(const Request& request);

  // Its other axes are those of the output.
  void look_at_input(int input, const AxisMapping& look);
  // Its other axes are those of the first input. REQUIRES: no epilogue.
  void look_at_output(int output, const AxisMapping& look);
  bool is_dense(const Operand& operand);  // row-major, without gaps
  // Whether two neighbouring axes of an operand could be one.
  bool lie_behind(const Operand& operand, int outer, int inner);
  // All elements as unsigned integers of their size, which copies keep bit by bit; but not those of
  // input `indices`.
  void as_bits(int indices = -1);
  void set_dtype(int input, DataType dtype) {
    inputs_[static_cast<size_t>(input)].type.dtype = dtype;
  }
  // Makes the axis along which the first output's elements are neighbours in memory the innermost
  // one, so that neighbouring threads write neighbours. Does nothing where the axis is short, or a
  // program of the epilogues uses index().
  void move_unit_axis_last();
  // Drops axes of size 1 and merges axes that are contiguous in all operands, which broadcast to
  // the outputs. Does nothing where a program of the epilogues uses index().
  void merge_axes();

  // Valid until the next change. The request that it was made of must live.
  Request request() const;
  const Shape& space() const { return outputs_[0].type.shape; }
  // Whether counting the elements of `shape` and a stride of threads beside fits in an i32.
  bool is_small(const Shape& shape) const;

  // The data of a view that launches need.
  struct Looks {
    std::vector<int> inputs;
    std::vector<std::vector<AxisMapping>> of_inputs, of_outputs;
    void apply(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
               std::vector<TensorView>& seen_inputs, std::vector<TensorView>& seen_outputs) const;
  };
  const Looks& looks() const { return looks_; }

 private:
  bool epilogues_use_index() const;
  bool can_merge(const Operand& operand, int outer, int inner);
  void look_at_all(const std::vector<PerAxis<int>>& groups);

  const Request& request_;
  int op_input_count_;
  std::vector<Operand> inputs_, outputs_;
  SizeTable sizes_;
  Looks looks_;
};

}  // namespace anneal::cuda
