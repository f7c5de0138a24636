// LibraryOperator: an operator of a library of kernels, behind the interfaces of graph and kernels.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/engine/run/library/c_kernels.h"
#include "anneal/graph/op/custom_operator.h"
#include "anneal/kernels/custom_kernels.h"

namespace anneal {

class LibraryOperator final : public CustomOperator, public CustomKernels {
 public:
  // REQUIRES: infer and run are there; destroy if create is, cuda_launch if cuda_source is.
  LibraryOperator(Description description, const anneal_kernel& table)
      : CustomOperator(std::move(description)), table_(table) {}

  std::vector<Type> infer(const Custom& op, const InferInputs& inputs) const override;
  const CustomKernels& kernels() const override { return *this; }
  KernelResult make_for_cpu(const Custom& op, const Request& request) const override;
  CustomFunctionResult make_for_gpu(const Custom& op, const Request& request) const override;

 private:
  const anneal_kernel table_;
};

}  // namespace anneal
