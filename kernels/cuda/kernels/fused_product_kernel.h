// A kernel of one function with a generated store: MatMul, Conv, Pool.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/text/program_text.h"

namespace anneal::cuda {

struct FusedProductParts {
  // See add_functions(). general: for memory that `function` cannot read; null: there is none.
  std::shared_ptr<const Function> function, general;
  std::optional<StoreText> store;     // none: the outputs are plain parameters
  std::vector<size_t> inputs;         // the op's that are parameters
  std::vector<VectorAccess> vectors;  // and behind add_functions() the store's
  std::vector<Extents::Source> sources;
  // For views that hold no data.
  std::function<Geometry(std::span<const TensorView> inputs, std::span<const TensorView> outputs)>
      geometry;
  std::vector<std::byte> tactic;
};

// Adds the text twice. `aligned` is a constant in it (bit i: vectors[i] may be read at once), and
// so is `store_aligned`, for the store's vectors: all bits are set in one function, none in the
// other, and each launch takes the one that its memory allows. A plan knows most addresses and
// passes them to know_alignments(), which leaves one function: weights and arena slots are aligned,
// and so are views at offsets of whole vectors. Both stay for views at offsets that are known only
// at run time, and for strides of unknown sizes that may be no whole vectors.
void add_functions(FusedProductParts& parts, const Request& request, const FunctionText& text);

// The parameters of its functions: inputs, the store's, the extents'.
class FusedProductKernel final : public Kernel {
 public:
  explicit FusedProductKernel(FusedProductParts parts) : parts_(std::move(parts)) {}
  std::vector<std::byte> tactic() const override { return parts_.tactic; }
  std::unique_ptr<PreparedKernel> prepare(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs,
                                          int threads) const override;
  void launch(const LaunchArgs& args) const override;
  void know_alignments(std::span<const uint32_t> inputs, std::span<const uint32_t> outputs);

 private:
  FusedProductParts parts_;
};

// The maker of a kernel on tensor cores, from one for either kind of cores.
template <class T, KernelResult (*make)(const T&, const Request&, bool on_tensor_cores)>
KernelResult make_on_tensor_cores(const T& op, const Request& request) {
  const DataType dtype = request.inputs[0].type.dtype;
  if (dtype != DataType::kF16 && dtype != DataType::kBF16 && size_of(dtype) != 1)
    return refuse("only f16, bf16 and 8 bits");
  return make(op, request, true);
}

// Refuses if a launch cannot take that many arguments.
KernelResult make_fused_product(FusedProductParts parts, const Request& request);

// Blocks in one row. Fails with kUnsupported if a grid cannot have as many.
Geometry blocks_of(int64_t blocks, int threads, int shared_bytes = 0);

}  // namespace anneal::cuda
