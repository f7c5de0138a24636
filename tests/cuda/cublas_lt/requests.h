// Layers of tests as requests for kernels.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "anneal/graph/program/program.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/kernel.h"

namespace anneal::testing {

inline Operand operand(DataType dtype, const Dims& dims, const Dims& strides) {
  return {.type = {dtype, shape_of(dims)}, .strides = shape_of(strides)};
}
inline Operand operand(DataType dtype, const Dims& dims) {
  return operand(dtype, dims, row_major_strides(dims));
}

// A layer on a device to build for.
struct Asked {
  Op op;
  std::vector<Operand> inputs = {}, outputs = {};
  std::string epilogue = {};  // a program; empty: none
  size_t op_inputs = 2;
  std::string target = "sm_90";

  // What a request refers to.
  std::shared_ptr<Device> device = {};
  std::vector<Program> programs = {};
  SizeTable sizes = {};

  Request request() {
    device = cuda_backend().open(target);
    programs.clear();
    if (!epilogue.empty()) programs.push_back(parse_program(epilogue));
    return {.op = op,
            .epilogues = programs,
            .op_input_count = static_cast<int>(op_inputs),
            .inputs = inputs,
            .outputs = outputs,
            .sizes = sizes,
            .device = *device,
            .tactic = {}};
  }
};

}  // namespace anneal::testing
