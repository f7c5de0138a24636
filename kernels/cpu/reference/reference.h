// The one wrapper around every reference kernel: a reference is written once, as "compute results",
// and the wrapper gives it epilogues.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cpu/base/element.h"
#include "anneal/kernels/cpu/base/strided.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cpu {

// inputs: the op's own. results[k]: where output k of the op goes. Without an epilogue it is the
// layer's output; before an epilogue, dense memory of the accumulator's type (f32 instead of f16
// and bf16, else the same dtype).
struct ReferenceArgs {
  std::span<const TensorView> inputs;
  std::span<const TensorView> results;
  std::byte* scratch;
  ThreadTeam& team;
  DataDependentDims* found;  // of a FindingReference: what it found
  bool has(size_t i) const { return i < inputs.size() && inputs[i].data != nullptr; }
};

// For products whose outputs each have a part of the weights' columns: f(args of one output) for
// each. `axis` of input 1 is cut into the outputs' sizes of `result_axis`; so are inputs 3 and 4,
// which have numbers for each column: along their last axis, or, with an input 4, along `axis`.
template <class F>
void for_parts(const ReferenceArgs& args, int axis, int result_axis, F f) {
  std::array<TensorView, 5> inputs;
  check(args.inputs.size() <= inputs.size(), "a product has at most five inputs");
  std::copy(args.inputs.begin(), args.inputs.end(), inputs.begin());
  const auto cut_axis = [&](size_t i) {
    if (i == 1 || !args.has(i) || count(args.inputs[i].dims) <= 1) return i == 1 ? axis : -1;
    const int along = args.has(4) ? axis : args.inputs[i].dims.rank() - 1;
    return args.inputs[i].dims[along] > 1 ? along : -1;
  };
  for (const TensorView& result : args.results) {
    const int64_t size = result.dims[result_axis];
    ReferenceArgs part = args;
    part.inputs = std::span(inputs).first(args.inputs.size());
    part.results = {&result, 1};
    for (const size_t i : {1, 3, 4})
      if (const int along = cut_axis(i); along >= 0) inputs[i].dims[along] = size;
    f(part);
    for (const size_t i : {1, 3, 4})
      if (const int along = cut_axis(i); along >= 0)
        inputs[i] = with_offset(inputs[i], size * inputs[i].strides[along]);
  }
}

class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(const Request& request);
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override;
  void launch(const LaunchArgs& args) const override;

 protected:
  std::span<const TensorView> op_inputs(std::span<const TensorView> inputs) const {
    return inputs.first(op_inputs_);
  }
  virtual void compute(const ReferenceArgs& args) const = 0;
  // Views without data. results have the dims that compute() will see.
  virtual size_t scratch_bytes(std::span<const TensorView> inputs,
                               std::span<const TensorView> results) const = 0;

 private:
  std::vector<Program> epilogues_;  // empty: results are the outputs
  size_t op_inputs_;
};

// Why the epilogues do not fit the request's inputs and outputs; empty if they do.
std::string epilogue_mismatch(const Request& request);

inline size_t no_scratch(std::span<const TensorView>, std::span<const TensorView>) { return 0; }

template <class T, void (*computes)(const T&, const ReferenceArgs&), auto scratch>
class ReferenceOf final : public ReferenceKernel {
 public:
  ReferenceOf(const T& op, const Request& request) : ReferenceKernel(request), op_(op) {}

 protected:
  void compute(const ReferenceArgs& args) const override { computes(op_, args); }
  size_t scratch_bytes(std::span<const TensorView> inputs,
                       std::span<const TensorView> results) const override {
    if constexpr (requires { scratch(op_, inputs, results); }) {
      return scratch(op_, inputs, results);
    } else {
      return scratch(inputs, results);
    }
  }

 private:
  T op_;
};

// For an op whose sizes follow from the values of its inputs (Kernel::find).
template <class T, auto finds, void (*computes)(const T&, const ReferenceArgs&)>
class FindingReference final : public ReferenceKernel {
 public:
  FindingReference(const T& op, const Request& request) : ReferenceKernel(request), op_(op) {}
  std::unique_ptr<DataDependentDims> find(std::span<const TensorView> inputs, DeviceStream&,
                                          ThreadTeam& team) const override {
    return finds(op_, op_inputs(inputs), team);
  }

 protected:
  void compute(const ReferenceArgs& args) const override { computes(op_, args); }
  size_t scratch_bytes(std::span<const TensorView>, std::span<const TensorView>) const override {
    return 0;
  }

 private:
  T op_;
};

template <class T, auto finds, void (*computes)(const T&, const ReferenceArgs&)>
KernelResult make_finding_reference(const T& op, const Request& request) {
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  return std::make_unique<FindingReference<T, finds, computes>>(op, request);
}

// finds: std::unique_ptr<DataDependentDims>(const T&, op's inputs, ThreadTeam&).
template <class T, auto finds, void (*computes)(const T&, const ReferenceArgs&)>
constexpr KernelEntry finding_reference(std::string_view name) {
  return entry<T, make_finding_reference<T, finds, computes>>(name);
}

template <class T, void (*computes)(const T&, const ReferenceArgs&), auto scratch>
KernelResult make_reference(const T& op, const Request& request) {
  if (std::string mismatch = epilogue_mismatch(request); !mismatch.empty())
    return refuse(std::move(mismatch));
  return std::make_unique<ReferenceOf<T, computes, scratch>>(op, request);
}

// scratch: size_t (const T&, inputs, results) or size_t (inputs, results).
template <class T, void (*computes)(const T&, const ReferenceArgs&), auto scratch = no_scratch>
constexpr KernelEntry reference(std::string_view name) {
  return entry<T, make_reference<T, computes, scratch>>(name);
}

// Interprets a program for every element of `dims`: inputs broadcast to dims, outputs have them.
// Outputs may be the same memory as inputs if the strides are equal too.
void run_program(const Program& program, const Dims& dims, std::span<const TensorView> inputs,
                 std::span<const TensorView> outputs, ThreadTeam& team);

}  // namespace anneal::cpu
