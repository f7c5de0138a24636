// A kernel that launches one function over its views of the operands.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/operand_views.h"

namespace anneal::cuda {

// The parameters of the function are all inputs and all outputs seen, then extra() if there is one,
// then the extents.
class FunctionKernel : public Kernel {
 public:
  struct Parts {
    std::shared_ptr<const Function> function;
    OperandViews::Looks looks;
    std::vector<Extents::Source> sources;
    const DeviceSpec* spec;
  };
  explicit FunctionKernel(Parts parts) : parts_(std::move(parts)) {}
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override;
  void launch(const LaunchArgs& args) const override;

 protected:
  using Views = std::span<const TensorView>;
  // For these views, without data.
  virtual Geometry geometry(Views inputs, Views outputs) const = 0;
  // For these views, with data.
  virtual void add_extra(Arguments&, Views, Views) const {}
  // As many blocks as the device holds at once, or fewer if there is less to do.
  uint32_t blocks(int64_t threads, int threads_per_block) const;

 private:
  Parts parts_;
};

FunctionKernel::Parts parts_of(const Request& request, const OperandViews& seen,
                               const Extents& extents, FunctionText text);

// Inputs "x0", "x1", ... of a request as parameters of a function: "In<f32> x0, In<h16> x1".
std::string input_parameters(const Request& request, int count);

// "const i64 first = ...": the number of a thread of all, and how many there are.
std::string_view thread_numbers();
// A loop of all threads over [from, to) elements of dims, expressions of type i64. In `body` their
// coordinates are i0, i1, ... of type i64, or i32 if `small`.
std::string element_loop(const std::vector<std::string>& dims, bool small, std::string_view from,
                         std::string_view to, const std::string& body);
std::string product(const std::vector<std::string>& factors);
// The sizes of an output's axes.
std::vector<std::string> output_dims(const Request& request, Extents& extents, int output);

}  // namespace anneal::cuda
