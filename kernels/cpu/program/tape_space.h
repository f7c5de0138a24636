// TapeSpace: the elements of an output as rows x columns blocks, and the address of every operand
// of a tape in them. It is made once per shape, and its run() allocates nothing.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "anneal/core/tensor.h"
#include "anneal/kernels/cpu/program/tape.h"

namespace anneal::cpu {

// Rows [row, row + rows) and columns [column, column + columns) of an output.
struct BlockRange {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// The results of a kernel for a block.
struct Accumulators {
  const void* data = nullptr;  // of the block's first element
  int64_t stride = 0;          // elements from row to row
};

class TapeSpace {
 public:
  // Which axes of the output are rows, outermost first, and which one is columns; -1: no axis, one
  // column. Together they are all axes of more than one element.
  struct Axes {
    Dims rows;
    int columns = -1;
    // Of [N, C, spatial axes]: a row for each pixel.
    static Axes of_pixels(int rank) {
      Axes axes{{0}, 1};
      for (int axis = 2; axis < rank; ++axis) axes.rows.push_back(axis);
      return axes;
    }
  };

  TapeSpace() = default;
  // For a Pointwise layer: axes in the memory order of the first output.
  static TapeSpace of_elements(const Tape& tape, std::span<const TensorView> inputs,
                               std::span<const TensorView> outputs);
  // For an epilogue: input 0 of the tape is a block of accumulators; `inputs` are the further ones.
  // Rows are numbered through the row axes, the last one fastest.
  static TapeSpace of_accumulators(const Tape& tape, std::span<const TensorView> inputs,
                                   std::span<const TensorView> outputs, const Axes& axes);
  // The space of a tape that reads all its inputs, for blocks that are a part of the whole space.
  static TapeSpace of_blocks(const Tape& tape, std::span<const TensorView> inputs,
                             std::span<const TensorView> outputs, const Axes& axes);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // Whether all rows are evenly spaced in every operand; and where an element of one is then, of
  // the inputs (without accumulators) and outputs, all counted in bytes.
  bool has_even_rows() const { return row_dims_.rank() <= 1; }
  struct Place {
    int64_t offset, row_stride, column_stride;
  };
  Place place(size_t operand, int64_t row, int64_t column) const {
    const Strides& strides = strides_[operand];
    const int64_t along_rows = row_dims_.rank() > 0 ? strides.rows[0] : 0;
    return {(row * along_rows + column * strides.columns) * strides.element_size,
            along_rows * strides.element_size, strides.columns * strides.element_size};
  }

  // The operands of run(): views as given at construction, now with data.
  struct Operands {
    std::span<const TensorView> inputs, outputs;
    Accumulators accumulators = {};
  };
  void run(RunTape run_tape, const Tape& tape, const Operands& operands, const BlockRange& block,
           std::byte* scratch) const;

 private:
  struct Strides {
    Dims rows;  // per row axis
    int64_t columns = 0;
    int64_t element_size = 0;
  };
  TapeSpace(const Tape& tape, std::span<const TensorView> inputs,
            std::span<const TensorView> outputs, const Axes& axes, bool with_accumulators);
  void join_rows();
  void join_columns();
  void put_long_row_axis_last();
  bool follows(int outer, int inner) const;

  bool with_accumulators_ = false;
  size_t input_count_ = 0;
  Dims row_dims_;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<Strides> strides_;  // inputs, outputs, indices
};

}  // namespace anneal::cpu
