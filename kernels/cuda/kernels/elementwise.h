// Kernels that run programs over operands that broadcast to the outputs: Pointwise, ops whose
// output is a view of their input, and gathers.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/byte_table.h"
#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/index_mapping.h"
#include "anneal/kernels/cuda/text/operand_views.h"

namespace anneal::cuda {

// Applies `program` to the op's inputs, and the epilogues to its results. Merges axes first.
KernelResult make_elementwise(const Program& program, OperandViews seen, std::string_view family);
// Looks up what a program of one input of 8 bits gives, in shared memory.
KernelResult make_lookup(const Program& program, const ByteTable& table, OperandViews seen,
                         std::string_view family);
// As make_elementwise(), where the op's inputs behind the first have one element for `size`
// elements along an axis of the result, or for those that are left at its end. Keeps axes apart.
struct InputBlocks {
  int axis = 0;
  int64_t size = 1;
};
KernelResult make_blocked(const Program& program, const InputBlocks& blocks, OperandViews seen,
                          std::string_view family);
// Passes on elements of the first input, which the second input's indices name. An index out of
// range reads the nearest position.
KernelResult make_gather(const IndexMapping& mapping, OperandViews seen, std::string_view family);

// One thread per element of the op's output. `body` is its text at coordinates i0, i1, ...: it ends
// with a call of store(accumulator, i0, i1, ...). Inputs are x0, x1, ...
using BodyText = std::function<std::string(const Request&, Extents&)>;
struct PerElement {
  BodyText before = {};                        // statements of each thread, before its elements
  std::vector<size_t> host_inputs = {};        // as in FunctionParts
  std::vector<std::string_view> headers = {};  // of device/, behind program.h
  std::string definitions = {};                // of types, before the function
  // What a launch fails with if input 0 is empty, but the output is not.
  std::string_view if_empty = {};
};
KernelResult make_per_element(const OperandViews& seen, DataType accumulator,
                              std::string_view family, const BodyText& body, PerElement more = {});
std::string store_call(const std::string& value, int rank);

}  // namespace anneal::cuda
