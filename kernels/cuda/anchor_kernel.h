// A kernel of one function with a generated store: MatMul, Conv, Pool.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/kernels/cuda/program_text.h"

namespace anneal::cuda {

// Elements of an input that are read several at once, where its memory allows: neighbours along
// `axis`; if `is_linear`, of what all axes but the first span without gaps.
struct VectorRead {
  size_t input = 0;
  int axis = 0;
  int64_t elements = 1;
  bool is_linear = false;
};
// How many elements of an input may be read at once, at most `most`, a power of two: 1, unless
// neighbours along `axis` are adjacent, `size` of them are whole vectors, and no known stride
// forbids it. Whether the memory allows it is seen at each launch.
int64_t vector_elements(const Operand& operand, int axis, Size size, int64_t most);

struct AnchorParts {
  std::shared_ptr<const Function> function;
  std::optional<StoreText> store;  // none: the outputs are parameters as they are
  std::vector<size_t> inputs;      // the op's that are parameters
  std::vector<VectorRead> vectors;
  std::vector<Extents::Source> sources;
  // For views that hold no data.
  std::function<Geometry(std::span<const TensorView> inputs, std::span<const TensorView> outputs)>
      geometry;
  std::vector<std::byte> tactic;
};

// The parameters of its function: inputs, `i32 aligned` (bit i: vectors[i] may be read at once),
// the store's, the extents'.
class AnchorKernel final : public Kernel {
 public:
  explicit AnchorKernel(AnchorParts parts) : parts_(std::move(parts)) {}
  std::vector<std::byte> tactic() const override { return parts_.tactic; }
  std::unique_ptr<Prepared> prepare(std::span<const TensorView> inputs,
                                    std::span<const TensorView> outputs,
                                    int threads) const override;
  void launch(const LaunchArgs& args) const override;

 private:
  AnchorParts parts_;
};

// Refuses if a launch cannot take that many arguments.
Made make_anchor(AnchorParts parts, const Request& request);

// Blocks in one row. Fails with kUnsupported if a grid cannot have as many.
Geometry blocks_of(int64_t blocks, int threads, int shared_bytes = 0);

}  // namespace anneal::cuda
