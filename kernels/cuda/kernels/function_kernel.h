// The kernel of a generated function, over the operands of a layer or over its views of them.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/text/extents.h"
#include "anneal/kernels/cuda/text/operand_views.h"
#include "anneal/kernels/cuda/text/vector_access.h"

namespace anneal::cuda {

// The parameters of the function are `inputs`, all outputs, `extra` if there is any, the extents.
struct FunctionParts {
  using Views = std::span<const TensorView>;
  // general: for memory that `function` cannot read; null: there is none.
  std::shared_ptr<const Function> function, general;
  std::optional<OperandViews::Looks> looks;  // none: the operands themselves
  std::vector<size_t> inputs;                // of the layer, or of the looks
  // Those of `inputs` that lie on the host (is_host_value()) and whose values the function reads:
  // each launch copies them to the workspace, on the stream, as a recording of it does.
  std::vector<size_t> host_inputs;
  std::vector<VectorAccess> vectors;  // that `function` needs. REQUIRES: no looks
  std::function<void(Arguments&, Views inputs, Views outputs)> extra;
  std::vector<Extents::Source> sources;
  // For views that hold no data.
  std::function<Geometry(Views inputs, Views outputs)> geometry;
  std::vector<std::byte> tactic;
};

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(FunctionParts parts) : parts_(std::move(parts)) {}
  std::vector<std::byte> tactic() const override { return parts_.tactic; }
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs, int) const override;
  void launch(const LaunchArgs& args) const override;
  // Drops the function that memory of these alignments does not need.
  void know_alignments(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);

 private:
  FunctionParts parts_;
};

// Parts over all inputs and outputs as `seen`; the geometry is still to be given.
FunctionParts parts_of(const Request& request, const OperandViews& seen, const Extents& extents,
                       FunctionText text);
// As many blocks as the device holds at once, or fewer if there is less to do.
uint32_t resident_blocks_for(const DeviceSpec& spec, int64_t threads, int threads_per_block);

// Inputs "x0", "x1", ... of a request as parameters of a function: "In<f32> x0, In<h16> x1".
std::string input_parameters(const Request& request, int count);

// "const i64 first = ...": the number of a thread of all, and how many there are.
std::string_view thread_numbers();
// A loop of all threads over [from, to) elements of dims, expressions of type i64. In `body` their
// coordinates are i0, i1, ... of type i64, or i32 if `small`.
std::string element_loop(const std::vector<std::string>& dims, bool small, std::string_view from,
                         std::string_view to, const std::string& body);
// The coordinates i0, i1, ... of element n of dims, in row-major order, all of this type.
std::string element_coordinates(const std::vector<std::string>& dims, std::string_view type);
std::string product(const std::vector<std::string>& factors);
// The sizes of an output's axes.
std::vector<std::string> output_dims(const Request& request, Extents& extents, int output);

}  // namespace anneal::cuda
