// How a MatMul of known sizes is cut, and where its operands lie.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "anneal/core/dims.h"
#include "anneal/kernels/cpu/gemm/gemm.h"
#include "anneal/kernels/cpu/program/epilogue.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// Where each of a batch of matrices is, counted in elements or in matrices.
struct BatchOffsets {
  Dims dims, strides;
  int64_t operator()(int64_t batch) const {
    int64_t offset = 0;
    for (int axis = dims.rank() - 1; axis >= 0; --axis) {
      offset += batch % dims[axis] * strides[axis];
      batch /= dims[axis];
    }
    return offset;
  }
};

// Strides of a view's leading axes for batches of these dims.
inline BatchOffsets batch_offsets(const Dims& batches, const Dims& dims, const Dims& strides) {
  BatchOffsets offsets{batches, Dims::filled(batches.rank(), 0)};
  const int missing = batches.rank() - (dims.rank() - 2);
  for (int axis = 0; axis < dims.rank() - 2; ++axis)
    if (dims[axis] != 1) offsets.strides[missing + axis] = strides[axis];
  return offsets;
}

// Where an output that the product writes itself lies, and its columns.
struct DirectOutput {
  int64_t begin = 0, end = 0, row = 0;
  BatchOffsets batch;
};

struct PreparedMatMul final : PreparedKernel {
  explicit PreparedMatMul(Epilogues::Spaces made) : spaces(std::move(made)) {}
  Epilogues::Spaces spaces;
  int64_t m = 0, n = 0, k = 0, batches = 1;
  int64_t a_row = 0, a_k = 0;
  BatchOffsets a_batch, b_batch, b_matrix;
  PackLayout layout;
  PackSource b;  // of the first matrix, without data
  int64_t b_matrices = 1;
  GemmBlocks blocks;
  // Of columns and of rows, if a few rows read b where it lies; else 0.
  int64_t few_blocks = 0, few_parts = 0;
  bool a_is_direct = false, c_is_direct = false;
  bool packs_blocks = false;    // each block of columns packs its part of b, and has all rows
  std::vector<DirectOutput> c;  // all outputs, if c_is_direct
  // Byte offsets: shared in the workspace, the others in a thread's part.
  size_t packed_at = 0, columns_at = 0, parts_at = 0, part_bytes = 0;
  size_t c_at = 0, sums_at = 0, tape_at = 0;
  int64_t a_pitch = 0;  // bytes
};

}  // namespace anneal::cpu
